"""Arguments of commands that would have no effect, or whose values are invalid, are refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from interposer import CreationOptions, Network, TensorInfo
from interposer.cli import serve
from interposer.cli.main import main

pytestmark = pytest.mark.needs_cpuref
QUANTIZE = "quantize net.txt --output q.txt"
SERVE = "serve net.txt"
CHECK = "check-backend CpuRef"
REFUSED = [
    ("run net.txt --random --layout NHWC", "--layout is for images, but no --input is one"),
    ("run net.txt --random --mean 1", "--mean is for images, but no --input is one"),
    ("run net.txt --input x.npy --std 2", "--std is for images, but no --input is one"),
    ("run net.txt --random --quantize-inputs", "--quantize-inputs is for quantized inputs, but the network has none"),
    ("explain net.txt --quantize-inputs", "--quantize-inputs is for measuring; give --measure too"),
    ("explain net.txt --measure --random --quantize-inputs", "--quantize-inputs is for quantized inputs"),
    ("explain net.txt --budget 2", "--budget is for measuring; give --measure too"),
    ("explain net.txt --seed 2", "--seed is what the network runs on to be measured; give --measure too"),
    ("trace net.txt --output t.json --seed x", "--seed: expected a whole number of 0 or more, not 'x'"),
    ("trace net.txt --output t.json --random --quantize-inputs", "--quantize-inputs is for quantized inputs"),
    ("bench net.txt --random --no-auto --budget 1", "--budget is the time to look for the fastest mix"),
    ("bench net.txt --random --quantize-inputs", "--quantize-inputs is for quantized inputs"),
    ("compare net.txt --random --backends CpuRef,Torch --quantize-inputs", "--quantize-inputs is for quantized"),
    ("compare net.txt --steps x", "--steps: expected a number of 0 or more, not 'x'"),
    ("plan net.txt --threads 0", "--threads: expected a number of threads from 1 to 4096, not '0'"),
    ("compile net.txt --output c.ipn --sign-key none.pem", "none.pem: the signing key cannot be read"),
    ("compile net.txt --output no/c.ipn", "no/c.ipn"),
    ("compile net.txt --output c.ipn --sign-as digits", "needs sign_key"),
    ("saved net.txt --trusted-key net.txt", "net.txt"),
    ("convert net.txt written.txt --outputs z", "outputs: the model has no value 'z'"),
    ("convert net.txt written.txt --inexact", "--inexact is for Arm NN and ONNX, but the output is 'written.txt'"),
    ("convert net.txt written.txt --release 20.08", "--release is for Arm NN, but the output is 'written.txt'"),
    (f"{QUANTIZE} --data x.npy --percentile 99", "percentile is for the observer 'percentile', not for 'minmax'"),
    (f"{QUANTIZE} --data x.npy --block-size 16", "block_size is for the scheme 'weights-int4', not for 'int8'"),
    (f"{QUANTIZE} --data x.npy --observer most", "--observer: unknown choice 'most'"),
    (f"{QUANTIZE} --data x.npy --target x", "--target: expected a number of decibels, not 'x'"),
    (f"{QUANTIZE} --data x.npy --layout NHWC", "layout, mean and std are for images, but there is none"),
    (f"{QUANTIZE} --data x.npy --mean 1", "layout, mean and std are for images, but there is none"),
    (f"{QUANTIZE} --data x.npy --std 2", "layout, mean and std are for images, but there is none"),
    (f"{QUANTIZE} --scheme float16 --no-per-channel", "per_channel is for schemes with integer layers"),
    (f"{QUANTIZE} --scheme float16 --no-correct-bias", "correct_bias is for schemes with integer layers"),
    (f"{QUANTIZE} --scheme float16 --quantize-types", "keep_types is for schemes with integer layers"),
    ("quantize net.txt --output no/q.txt --data x.npy", "no/q.txt"),
    (f"{SERVE} --plan none.json", "none.json: there is no such file"),
    (f"{SERVE} --batch 0", "--batch: expected a whole number of 1 or more, not '0'"),
    (f"{SERVE} --batch-delay x", "--batch-delay: expected a time such as 2ms, 30s or 5min, not 'x'"),
    (f"{SERVE} --threads 0", "--threads: expected a number of threads from 1 to 4096, not '0'"),
    (f"{SERVE} --queue 0", "--queue: expected a whole number of 1 or more, not '0'"),
    (f"{SERVE} --max-body 0", "--max-body: expected a number of bytes such as 64MiB or 1G, not '0'"),
    (f"{SERVE} --timeout 0s", "--timeout must be more than 0 seconds"),
    (f"{SERVE} --drain x", "--drain: expected a time such as 2ms, 30s or 5min, not 'x'"),
    (f"{SERVE} --shared-memory", "--shared-memory is for clients with a token, also on this host"),
    (f"{SERVE} --tls-cert c.pem", "TLS needs both --tls-cert and --tls-key"),
    (f"{SERVE} --tls-key k.pem", "TLS needs both --tls-cert and --tls-key"),
    (f"{SERVE} --tls-client-ca a.pem", "TLS needs both --tls-cert and --tls-key"),
    (f"{SERVE} --max-memory 0", "--max-memory: expected a number of bytes such as 64MiB or 1G, not '0'"),
    (f"{SERVE} --cache-size 0", "--cache-size: expected a number of bytes such as 64MiB or 1G, not '0'"),
    (f"{SERVE} --max-connections 0", "--max-connections: expected a whole number of 1 or more, not '0'"),
    (f"{SERVE} --rate 0", "--rate: expected a number of requests per second above 0, not '0'"),
    (f"{SERVE} --instances 0", "--instances: expected a whole number from 1 to 1024, not '0'"),
    (f"{SERVE} --poll 0s", "--poll must be more than 0 seconds"),
    (f"{SERVE} --health-port 65536", "--health-port: expected a port from 0 to 65535, not '65536'"),
    (f"{SERVE} --socket s --workers 2", "--socket needs --workers 1, as processes cannot share a Unix socket"),
    (f"{SERVE} --clients none.toml", "none.toml: there is no such file"),
    (f"{SERVE} --signed-names", "--signed-names and --least-version are about signatures; give --trusted-key"),
    (f"{SERVE} --least-version net=x", "--least-version: expected a model and a version such as digits=7"),
    ("profile p.bin --socket s", "--socket is for --listen, and a file is read"),
    ("profile p.bin --clients 2", "--clients is for --listen, and a file is read"),
    ("profile p.bin --seconds 2", "--seconds is for --listen, and a file is read"),
    ("profile p.bin --period 2", "--period is for --listen, and a file is read"),
    ("profile p.bin --counters 2", "--counters is for --listen, and a file is read"),
    ("profile p.bin --timeline", "--timeline is for --listen, and a file is read"),
    ("profile p.bin --store s.bin", "--store is for --listen, and a file is read"),
    ("profile p.bin --output t.txt", "--output takes a file with the suffix"),
    (f"{CHECK} --examples x", "--examples: expected a whole number of 0 or more, not 'x'"),
    (f"{CHECK} --timeout x", "--timeout: expected a positive number of seconds, not 'x'"),
    (f"{CHECK} --random 2 --examples 3", "--random judges nothing but random networks; --examples cannot be given"),
    (f"{CHECK} --random 2 --timeout 3", "--random judges nothing but random networks; --timeout cannot be given"),
    *((f"{CHECK} {option}", f"{option.split()[0]} is for random networks; give --random, too") for option in (
        "--seed 1", "--start 1", "--kind float", "--steps 1", "--jobs 1", "--threads 1", "--shrink 1", "--folder f",
        "--seconds 1",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_an_argument_without_an_effect_is_refused(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERPOSER_SERVE_TOKEN", raising=False)
    network = Network("net")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    weights = network.add_constant_layer(np.eye(4, dtype=np.float32))
    network.add_output_layer(0, network.add_fully_connected_layer(x, weights), name="y")
    Path("net.txt").write_text(network.text(), encoding="utf-8")
    np.save("x.npy", np.ones((2, 1, 4), np.float32))
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_arguments_of_a_server_become_its_options() -> None:
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    words = (
        "net.txt --strict-readiness --allow-host App.example --allow-origin https://app.example "
        "--trusted-key key.pem --least-version net=3"
    )
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    args = parser.parse_args(words.split())
    options = serve._server(args, None, CreationOptions(), {}).core.options
    assert options.strict_readiness
    assert {"app.example", "localhost"} <= {*(options.hosts or ())}
    assert options.origins == ("https://app.example",)
    [source] = serve._sources(args)
    assert (source.settings.signed_names, source.settings.least_version) == (True, 3)
