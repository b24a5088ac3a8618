"""The shortest server for a model, against which benchmarks compare `interposer serve`: no limits, checks or metrics.

    python benchmarks/serving_peer.py MODEL BACKENDS HTTP_PORT GRPC_PORT

Over HTTP, it answers requests of the Open Inference Protocol with JSON or with binary tensors. Over gRPC, it answers
requests with raw contents.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import interposer
from interposer.serving.protocol.datatypes import wire_type
from interposer.serving.protocol.grpc_messages import INFERENCE, message

model = interposer.load(sys.argv[1], backends=sys.argv[2].split(","))
KINDS = {"FP32": np.float32, "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32, "INT64": np.int64}
TYPES = {name: wire_type(info) for name, info in model.outputs.items() if info is not None}


async def infer(request: Request) -> Response:
    """Answer one request over HTTP."""
    body, inputs = await request.body(), []
    place = int(request.headers.get("inference-header-content-length", len(body)))
    head = json.loads(body[:place])
    for tensor in head["inputs"]:
        kind, shape = KINDS[tensor["datatype"]], tensor["shape"]
        if "data" in tensor:
            inputs.append(np.array(tensor["data"], kind).reshape(shape))
        else:
            size = tensor["parameters"]["binary_data_size"]
            inputs.append(np.frombuffer(body[place : place + size], kind).reshape(shape))
            place += size
    arrays = dict(zip(model.outputs, model.run(inputs), strict=True))
    items = [{"name": name, "datatype": TYPES[name], "shape": array.shape} for name, array in arrays.items()]
    if head.get("parameters", {}).get("binary_data_output"):
        items = [item | {"parameters": {"binary_data_size": arrays[item["name"]].nbytes}} for item in items]
        text = json.dumps({"model_name": "net", "outputs": items}).encode()
        fields = {"Inference-Header-Content-Length": str(len(text))}
        return Response(b"".join([text, *(array.tobytes() for array in arrays.values())]), headers=fields)
    items = [item | {"data": arrays[item["name"]].reshape(-1).tolist()} for item in items]
    return Response(json.dumps({"model_name": "net", "outputs": items}), media_type="application/json")


async def infer_rpc(request: Any, context: Any) -> Any:
    """Answer one request over gRPC."""
    raw = zip(request.inputs, request.raw_input_contents, strict=True)
    arrays = model.run([np.frombuffer(data, KINDS[item.datatype]).reshape(item.shape) for item, data in raw])
    outputs = [
        {"name": name, "datatype": TYPES[name], "shape": array.shape}
        for name, array in zip(model.outputs, arrays, strict=True)
    ]
    return Answer(model_name="net", outputs=outputs, raw_output_contents=[array.tobytes() for array in arrays])


async def ready(request: Request) -> Response:
    """Say that the server runs."""
    return Response()


Question, Answer = message("ModelInferRequest"), message("ModelInferResponse")


async def main() -> None:
    """Run both servers."""
    handler = grpc.unary_unary_rpc_method_handler(infer_rpc, Question.FromString, Answer.SerializeToString)
    rpc = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    rpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(INFERENCE, {"ModelInfer": handler}),))
    rpc.add_insecure_port(f"127.0.0.1:{sys.argv[4]}")
    await rpc.start()
    routes = [Route("/v2/models/net/infer", infer, methods=["POST"]), Route("/v2/models/net/ready", ready)]
    config = uvicorn.Config(Starlette(routes=routes), port=int(sys.argv[3]), access_log=False, log_level="warning")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
