"""Answer requests for a model with Ray Serve, with several replicas at one address.

Each replica is a process with a model of its own, and answers the Open Inference Protocol. If the process of a replica
dies, Ray starts it again, and only the other replicas answer until then. The requests that ran in it get the status 500
or 503, and their clients send them again.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Any

from ray import serve

import interposer as ip
from interposer.serving import ServeOptions, app

MODEL = Path(__file__).resolve().parents[1] / "digits" / "digits.onnx"


def application() -> Any:
    """Return the ASGI application of one replica. Ray calls this function in the process of the replica."""
    return app({"digits": ip.load(MODEL)}, ServeOptions(timeout=10.0))


def main() -> None:
    """Serve until a signal ends the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="the port of Ray's proxy")
    parser.add_argument("--replicas", type=int, default=2, help="how many processes answer")
    parser.add_argument("--cpus", type=float, default=0.5, help="processors that one of them reserves")
    args = parser.parse_args()
    serve.start(http_options={"host": "127.0.0.1", "port": args.port})
    deployment = serve.deployment(
        serve.ingress(application)(),
        name="digits",
        num_replicas=args.replicas,
        health_check_period_s=1.0,
        ray_actor_options={
            "num_cpus": args.cpus,  # a fraction: Ray's own processes need processors too
            "runtime_env": {"env_vars": {"INTERPOSER_NUM_THREADS": "1"}},
        },
    )
    serve.run(deployment.bind(), name="digits")
    print(f"serving digits at http://127.0.0.1:{args.port}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    serve.shutdown()


if __name__ == "__main__":
    main()
