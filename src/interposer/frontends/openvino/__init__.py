"""The front end of OpenVINO's IR: ``template(path)`` returns a template of the network, which is one layer."""

from interposer.frontends.openvino.network import template

__all__ = ["template"]
