"""Networks of the packages transformers, torchvision and timm for images, small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.torch_programs.program import Call, Program, built, ids, images, program

_VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}
_THREE = {"embed_dim": [8, 16, 32], "depth": [1, 1, 1]}
_FOUR = {"hidden_sizes": [8, 16, 32, 48], "depths": [1, 1, 1, 1]}
_SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViT", _VIT),
    "deit": ("DeiT", _VIT),
    "beit": ("Beit", _VIT | {"use_relative_position_bias": True}),
    "dinov2": ("Dinov2", _VIT),
    "yolos": ("Yolos", _VIT | {"image_size": [32, 32], "num_detection_tokens": 5}),
    "swin": ("Swin", _SWIN),
    "swin_v2": ("Swinv2", _SWIN),
    "convnext": ("ConvNext", _STAGES),
    "convnext_v2": ("ConvNextV2", _STAGES),
    "resnet": ("ResNet", _STAGES | {"embedding_size": 8, "layer_type": "basic"}),
    "regnet": ("RegNet", _STAGES | {"embedding_size": 8, "groups_width": 8}),
    "mobilenet_v1": ("MobileNetV1", {"depth_multiplier": 0.25, "image_size": 32}),
    "mobilenet_v2": ("MobileNetV2", {"depth_multiplier": 0.35, "image_size": 32}),
    "mobilevit": (
        "MobileViT",
        {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
         "num_attention_heads": 4},
    ),
    "efficientnet": (
        "EfficientNet",
        {"image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320},
    ),
    "poolformer": ("PoolFormer", _STAGES),
    "levit": (
        "Levit",
        {"image_size": 64, "hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 4, 6], "depths": [1, 1, 1],
         "key_dim": [8, 8, 8]},
    ),
    "pvt": (
        "Pvt",
        _FOUR | {"image_size": 64, "num_attention_heads": [1, 2, 4, 8]},
    ),
    "segformer": ("Segformer", {"hidden_sizes": [8, 16, 32, 48], "depths": [1, 1, 1, 1]}),
    "focalnet": ("FocalNet", {"image_size": 32, "embed_dim": 16, "depths": [1, 1]}),
    "cvt": ("Cvt", _THREE | {"num_heads": [1, 2, 4], "drop_path_rate": [0.0, 0.0, 0.0]}),
    "van": ("Dinat", {"embed_dim": 16}),
    "bit": ("Bit", {"embedding_size": 8, "hidden_sizes": [32, 32], "depths": [1, 1], "num_groups": 4}),
}  # fmt: skip
_MODELS.pop("van")


def _transformers(family: str, config: dict[str, Any], suffix: str = "Model") -> Any:
    import transformers

    return getattr(transformers, f"{family}{suffix}")(getattr(transformers, f"{family}Config")(**config))


def _picture(batch: int, size: int) -> Callable[[int], Call]:
    return lambda seed: Call((images(seed, (batch, 3, size, size)),))


def _register(name: str, family: str, config: dict[str, Any]) -> None:
    size = config.get("image_size", 32)
    side = size[0] if isinstance(size, list) else size
    program(name)(lambda: built(_transformers(family, config), _picture(2, side), _picture(3, side)))


for _name, (_family, _config) in _MODELS.items():
    _register(_name, _family, _config)


@program("dpt")
def dpt() -> Program:
    """Return the program of DPT for the estimation of depth."""
    config = _VIT | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 16, 16, 16]}
    small = {"fusion_hidden_size": 16, "is_hybrid": False, "reassemble_factors": [4, 2, 1, 0.5]}
    return built(_transformers("DPT", config | small, "ForDepthEstimation"), _picture(2, 32), _picture(3, 32))


@program("clip")
def clip() -> Program:
    """Return the program of CLIP with text and images."""
    text = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "eos_token_id": 98}
    config = {"text_config": text | {"intermediate_size": 64}, "vision_config": _VIT, "projection_dim": 16}

    def call(seed: int, batch: int) -> Call:
        values = {"input_ids": ids(seed, (batch, 7)), "pixel_values": images(seed, (batch, 3, 32, 32))}
        return Call((), values)

    return built(_transformers("CLIP", config), lambda seed: call(seed, 2), lambda seed: call(seed, 3))


@program("siglip")
def siglip() -> Program:
    """Return the program of the vision part of SigLIP."""
    import transformers

    model = transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**_VIT))
    return built(model, _picture(2, 32), _picture(3, 32))


@program("segformer_head")
def segformer_head() -> Program:
    """Return the program of SegFormer for segmentation."""
    config = {"hidden_sizes": [8, 16, 32, 48], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16, "num_labels": 5}
    model = _transformers("Segformer", config, "ForSemanticSegmentation")
    return built(model, _picture(2, 64), _picture(3, 96))


@program("timesformer")
def timesformer() -> Program:
    """Return the program of TimeSformer on clips of four frames."""
    model = _transformers("Timesformer", _VIT | {"num_frames": 4})
    return built(
        model, lambda s: Call((images(s, (2, 4, 3, 32, 32)),)), lambda s: Call((images(s, (3, 4, 3, 32, 32)),))
    )


_TORCHVISION = (
    "resnet18", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5", "densenet121", "googlenet",
    "efficientnet_b0", "regnet_y_400mf", "vgg11_bn", "alexnet", "vit_b_32", "swin_t", "convnext_tiny", "maxvit_t",
)  # fmt: skip


def _vision(name: str) -> Program:
    import torchvision

    options = {"init_weights": False} if name == "googlenet" else {}
    size = 224 if name in {"vit_b_32", "swin_t", "maxvit_t", "alexnet"} else 96
    return built(torchvision.models.get_model(name, weights=None, **options), _picture(2, size), _picture(3, size))


for _name in _TORCHVISION:
    program(f"torchvision_{_name}")(lambda name=_name: _vision(name))


def _timm(name: str) -> Program:
    import timm

    return built(timm.create_model(name, pretrained=False), _picture(2, 224), _picture(3, 224))


for _name in (
    "mobilenetv4_conv_small",
    "ghostnet_100",
    "mixer_s32_224",
    "repvgg_a0",
    "tiny_vit_5m_224",
    "edgenext_xx_small",
):
    program(f"timm_{_name}")(lambda name=_name: _timm(name))
