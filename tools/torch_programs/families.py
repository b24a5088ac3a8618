"""Further families of the package transformers, and decoders with caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tools.torch_programs.program import Call, Program, built, ids, images, program, sound

_TEXT = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64, "pad_token_id": 0, "use_cache": False,
}  # fmt: skip
_GROUPED = _TEXT | {"num_key_value_heads": 2, "head_dim": 8}
_EXPERTS = _GROUPED | {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "decoder_sparse_step": 1,
}  # fmt: skip
_LATENT = _TEXT | {
    "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "n_group": 2,
    "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 8, "q_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "head_dim": 4,
}  # fmt: skip
_PAIR = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "use_cache": False,
}  # fmt: skip
_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_bigcode": ("GPTBigCode", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "codegen": ("CodeGen", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4,
    "use_cache": False}),
    "gpt_neo": (
        "GPTNeo",
        {"vocab_size": 99, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
         "window_size": 4, "use_cache": False},
    ),
    "ctrl": ("CTRL", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "use_cache": False}),
    "gemma3": ("Gemma3Text", _GROUPED | {"sliding_window": 4}),
    "olmo2": ("Olmo2", _GROUPED),
    "olmoe": ("Olmoe", _EXPERTS),
    "glm": ("Glm", _GROUPED | {"partial_rotary_factor": 0.5}),
    "cohere2": ("Cohere2", _GROUPED | {"sliding_window": 4}),
    "nemotron": ("Nemotron", _GROUPED),
    "diffllama": ("DiffLlama", _GROUPED),
    "smollm3": ("SmolLM3", _GROUPED),
    "qwen3_moe": ("Qwen3Moe", _EXPERTS),
    "phimoe": ("Phimoe", _EXPERTS),
    "granitemoe": ("GraniteMoe", _EXPERTS),
    "gpt_oss": ("GptOss", _EXPERTS | {"sliding_window": 4}),
    "deepseek_v3": ("DeepseekV3", _LATENT),
    "deepseek_v2": ("DeepseekV2", _LATENT | {"topk_method": "greedy"}),
    "recurrent_gemma": ("RecurrentGemma", _TEXT | {"lru_width": 32, "attention_window_size": 4, "head_dim": 8,
    "num_key_value_heads": 1, "num_hidden_layers": 3}),
    "jamba": ("Jamba", _EXPERTS | {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False,
    "mamba_d_state": 4}),
    "falcon_mamba": ("FalconMamba", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False}),
    "qwen3_next": (
        "Qwen3Next",
        _EXPERTS | {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
                    "num_hidden_layers": 4, "shared_expert_intermediate_size": 16},
    ),
    "xlm": ("XLM", {"vocab_size": 99, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64}),
    "roformer": ("RoFormer", _TEXT | {"embedding_size": 32}),
    "megatron_bert": ("MegatronBert", _TEXT),
    "funnel": ("Funnel", {"vocab_size": 99, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64,
    "block_sizes": [1, 1]}),
    "longformer": ("Longformer", _TEXT | {"attention_window": 4}),
    "big_bird": ("BigBird", _TEXT | {"attention_type": "original_full"}),
    "esm": ("Esm", _TEXT | {"position_embedding_type": "rotary", "mask_token_id": 1}),
    "canine": ("Canine", _TEXT | {"num_hash_buckets": 64, "local_transformer_stride": 4, "downsampling_rate": 2}),
    "rembert": ("RemBert", _TEXT | {"input_embedding_size": 16, "output_embedding_size": 16}),
    "yoso": ("Yoso", _TEXT | {"use_expectation": True}),
    "ibert": ("IBert", _TEXT),
    "lilt": ("Lilt", _TEXT | {"channel_shrink_ratio": 2}),
    "splinter": ("Splinter", _TEXT),
    "data2vec_text": ("Data2VecText", _TEXT),
    "prophetnet_encoder": ("ProphetNetEncoder",
    {"vocab_size": 99, "hidden_size": 32, "num_encoder_layers": 2, "num_encoder_attention_heads": 4,
    "encoder_ffn_dim": 64}),
}  # fmt: skip
_PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "mbart": ("MBart", _PAIR),
    "marian": ("Marian", _PAIR | {"pad_token_id": 0, "decoder_start_token_id": 0}),
    "m2m_100": ("M2M100", _PAIR),
    "blenderbot": ("Blenderbot", _PAIR),
    "umt5": ("UMT5", {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "use_cache": False}),
    "led": ("LED", _PAIR | {"attention_window": [4, 4], "max_encoder_position_embeddings": 64,
    "max_decoder_position_embeddings": 64}),
    "prophetnet": (
        "ProphetNet",
        {"vocab_size": 99, "hidden_size": 32, "num_encoder_layers": 2, "num_encoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
         "num_decoder_layers": 2, "num_decoder_attention_heads": 4, "decoder_ffn_dim": 64, "use_cache": False},
    ),
    "switch_transformers": (
        "SwitchTransformers",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2,
        "num_heads": 4,
         "num_experts": 4, "use_cache": False},
    ),
}  # fmt: skip
_VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_BACKBONE = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}
_QUERIES = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_queries": 5, "use_timm_backbone": False,
    "use_pretrained_backbone": False, "backbone": None,
}  # fmt: skip
_IMAGES: dict[str, tuple[str, dict[str, Any], int]] = {
    "vit_msn": ("ViTMSNModel", _VIT, 32),
    "ijepa": ("IJepaModel", _VIT, 32),
    "dinov3": ("DINOv3ViTModel", _VIT, 32),
    "dinov2_registers": ("Dinov2WithRegistersModel", _VIT | {"num_register_tokens": 2}, 32),
    "hiera": ("HieraModel", {"embed_dim": 8, "image_size": [32, 32], "depths": [1, 1], "num_heads": [1, 2],
    "patch_stride": [4, 4], "patch_size": [7, 7],
                             "masked_unit_size": [4, 4], "num_query_pool": 1, "query_stride": [2, 2]}, 32),
    "mobilevit_v2": ("MobileViTV2Model", {"image_size": 64, "width_multiplier": 0.25, "n_attn_blocks": [1, 1, 1]}, 64),
    "swiftformer": ("SwiftFormerModel", {"image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [8, 16, 24, 32]}, 64),
    "efficientformer": ("PvtV2Model", {"image_size": 64, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 2, 3, 4]}, 64),
    "textnet": ("TextNetModel", {}, 64),
    "donut_swin": ("DonutSwinModel", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1],
    "num_heads": [2, 4], "window_size": 4}, 32),
    "swin2sr": ("Swin2SRForImageSuperResolution",
    {"image_size": 16, "embed_dim": 16, "depths": [2], "num_heads": [2], "window_size": 4, "upscale": 2}, 16),
    "glpn": ("GLPNForDepthEstimation", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
    "decoder_hidden_size": 8}, 64),
    "vit_mae_pixels": ("DeiTForMaskedImageModeling", _VIT | {"encoder_stride": 8}, 32),
    "superpoint": ("SuperPointForKeypointDetection", {}, 64),
    "data2vec_vision": ("Data2VecVisionModel", _VIT | {"use_relative_position_bias": True}, 32),
    "perceiver_image": ("ViTForImageClassification", _VIT | {"num_labels": 3}, 32),
    "convnext_head": ("ConvNextForImageClassification",
    {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_labels": 3}, 32),
}  # fmt: skip


def _model(name: str, config: dict[str, Any]) -> Any:
    import transformers

    kind = getattr(transformers, name)
    return kind(kind.config_class(**config))


def _tokens(seed: int, batch: int, length: int) -> Call:
    return Call((ids(seed, (batch, length)),))


def _pair(seed: int, batch: int, length: int) -> Call:
    return Call((), {"input_ids": ids(seed, (batch, length)), "decoder_input_ids": ids(seed + 50, (batch, length - 2))})


def _register_text(name: str, family: str, config: dict[str, Any], call: Callable[[int, int, int], Call]) -> None:
    kind = family if family.endswith("Encoder") else f"{family}Model"

    def build() -> Program:
        return built(_model(kind, config), lambda seed: call(seed, 2, 8), lambda seed: call(seed, 3, 12))

    program(name)(build)


for _name, (_family, _config) in _DECODERS.items():
    _register_text(_name, _family, _config, _tokens)
for _name, (_family, _config) in _PAIRS.items():
    _register_text(_name, _family, _config, _pair)


def _register_images(name: str, kind: str, config: dict[str, Any], size: int) -> None:
    def call(seed: int, batch: int) -> Call:
        return Call((images(seed, (batch, 3, size, size)),))

    def build() -> Program:
        return built(_model(kind, config), lambda seed: call(seed, 2), lambda seed: call(seed, 3))

    program(name)(build)


for _name, (_kind, _config, _size) in _IMAGES.items():
    _register_images(_name, _kind, _config, _size)


# --- detection, several inputs, sound and series ----------------------------------------------------------------------


def _resnet() -> Any:
    import transformers

    return transformers.ResNetConfig(**_BACKBONE)


for _name, _kind in (
    ("detr", "DetrForObjectDetection"), ("conditional_detr", "ConditionalDetrForObjectDetection"),
    ("table_transformer", "TableTransformerForObjectDetection"),
):  # fmt: skip

    def _detector(kind: str = _kind) -> Program:
        model = _model(kind, _QUERIES | {"backbone_config": _resnet()})
        return built(model, lambda s: Call((images(s, (2, 3, 64, 64)),)), lambda s: Call((images(s, (3, 3, 64, 64)),)))

    program(_name)(_detector)


@program("rt_detr")
def rt_detr() -> Program:
    """Return the program of RT-DETR."""
    config = {
        "encoder_hidden_dim": 32, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "num_queries": 6, "encoder_in_channels": [16, 24, 32], "decoder_in_channels": [32, 32, 32], "num_denoising": 0,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "backbone_config": _rt_backbone(),
    }  # fmt: skip
    model = _model("RTDetrForObjectDetection", config)
    return built(model, lambda s: Call((images(s, (2, 3, 64, 64)),)), lambda s: Call((images(s, (3, 3, 64, 64)),)))


def _rt_backbone() -> Any:
    import transformers

    return transformers.RTDetrResNetConfig(**_BACKBONE)


@program("maskformer")
def mask2former() -> Program:
    """Return the program of Mask2Former for segmentation."""
    import transformers

    swin = transformers.SwinConfig(
        image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4], window_size=2,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = {
        "backbone_config": swin, "hidden_dim": 32, "feature_size": 32, "mask_feature_size": 32, "encoder_layers": 1,
        "decoder_layers": 2,
        "num_attention_heads": 4, "dim_feedforward": 32, "encoder_feedforward_dim": 32, "num_queries": 4,
    }  # fmt: skip
    model = _model("Mask2FormerForUniversalSegmentation", config)
    return built(model, lambda s: Call((images(s, (2, 3, 64, 64)),)), lambda s: Call((images(s, (3, 3, 64, 64)),)))


@program("sam")
def sam() -> Program:
    """Return the program of SAM with points."""
    import transformers

    vision = transformers.SamVisionConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=8, output_channels=16,
        window_size=3, global_attn_indexes=[1], mlp_dim=32, num_pos_feats=8,
    )  # fmt: skip
    prompt = transformers.SamPromptEncoderConfig(hidden_size=16, image_size=64, patch_size=8, mask_input_channels=4)
    decoder = transformers.SamMaskDecoderConfig(
        hidden_size=16, mlp_dim=32, num_attention_heads=2, iou_head_hidden_dim=16
    )
    model = transformers.SamModel(
        transformers.SamConfig(vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)
    )

    def call(seed: int, batch: int) -> Call:
        points = images(seed + 9, (batch, 1, 2, 2)).abs() * 20
        return Call((), {"pixel_values": images(seed, (batch, 3, 64, 64)), "input_points": points})

    return built(model, lambda seed: call(seed, 2), lambda seed: call(seed, 3))


@program("blip")
def blip() -> Program:
    """Return the program of BLIP for captions."""
    text = _TEXT | {"encoder_hidden_size": 32, "projection_dim": 16, "bos_token_id": 1, "sep_token_id": 2}
    model = _model("BlipForConditionalGeneration", {"text_config": text, "vision_config": _VIT, "projection_dim": 16})

    def call(seed: int, batch: int) -> Call:
        return Call((), {"pixel_values": images(seed, (batch, 3, 32, 32)), "input_ids": ids(seed, (batch, 7))})

    return built(model, lambda seed: call(seed, 2), lambda seed: call(seed, 3))


@program("llava")
def llava() -> Program:
    """Return the program of LLaVA with one image in each text."""
    import transformers

    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_VIT, projection_dim=16),
        text_config=transformers.LlamaConfig(**_GROUPED), image_token_index=98, vision_feature_layer=-1,
    )  # fmt: skip
    model = transformers.LlavaForConditionalGeneration(config)

    def call(seed: int, batch: int) -> Call:
        text = torch.cat([torch.full((batch, 16), 98), ids(seed, (batch, 6))], 1)
        return Call((), {"input_ids": text, "pixel_values": images(seed, (batch, 3, 32, 32)), "use_cache": False})

    return built(model, lambda seed: call(seed, 2), lambda seed: call(seed, 3))


@program("videomae")
def videomae() -> Program:
    """Return the program of VideoMAE on clips of four frames."""
    model = _model("VideoMAEModel", _VIT | {"num_frames": 4})
    return built(
        model, lambda s: Call((images(s, (2, 4, 3, 32, 32)),)), lambda s: Call((images(s, (3, 4, 3, 32, 32)),))
    )


_SOUND = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 32,
    "conv_dim": [16, 16], "conv_stride": [4, 4], "conv_kernel": [8, 8], "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2,
}  # fmt: skip
for _name, _kind, _config, _first, _other in (
    ("wav2vec2_head", "Wav2Vec2ForCTC", _SOUND, (2, 400), (3, 480)),
    ("wav2vec2_conformer", "Wav2Vec2ConformerModel", _SOUND | {"position_embeddings_type": "rotary"}, (2, 400),
    (3, 400)),
    ("unispeech_sat", "UniSpeechSatModel", _SOUND, (2, 400), (3, 400)),
    ("data2vec_audio", "Data2VecAudioModel", _SOUND, (2, 400), (3, 400)),
    ("sew", "SEWModel", _SOUND | {"squeeze_factor": 2}, (2, 400), (3, 400)),
    ("encodec", "EncodecModel", {"num_filters": 4, "hidden_size": 8, "codebook_size": 16, "codebook_dim": 8,
    "upsampling_ratios": [4, 2], "num_lstm_layers": 1, "target_bandwidths": [1.5, 3.0]}, (2, 1, 160), (3, 1, 160)),
    ("dac", "DacModel", {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "decoder_hidden_size": 16,
    "n_codebooks": 2, "codebook_size": 16, "codebook_dim": 4, "hidden_size": 8}, (2, 1, 160), (3, 1, 160)),
    ("clap_audio", "ClapAudioModel", {"spec_size": 64, "patch_embeds_hidden_size": 8, "num_mel_bins": 16,
    "depths": [1, 1], "num_attention_heads": [1, 2], "hidden_size": 16, "window_size": 4, "patch_size": 4,
    "patch_stride": [4, 4], "num_hidden_layers": 2}, (2, 1, 64, 16), (3, 1, 64, 16)),
    ("vits_like_vocoder", "SpeechT5HifiGan",
    {"model_in_dim": 8, "upsample_initial_channel": 16, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4],
    "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]]}, (2, 10, 8), (3, 14, 8)),
    ("decision_vit", "ViTMSNForImageClassification", _VIT, (2, 3, 32, 32), (3, 3, 32, 32)),
):  # fmt: skip

    def _waves(
        kind: str = _kind, config: dict[str, Any] = _config, first: Any = _first, other: Any = _other
    ) -> Program:
        return built(_model(kind, config), lambda s: Call((sound(s, first),)), lambda s: Call((sound(s, other),)))

    program(_name)(_waves)


@program("time_series_transformer")
def time_series_transformer() -> Program:
    """Return the program of the encoder and decoder of a transformer for series."""
    config = {
        "prediction_length": 4, "context_length": 8, "input_size": 1, "lags_sequence": [1, 2], "num_time_features": 1,
        "d_model": 16,
        "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16, "use_cache": False,
    }  # fmt: skip
    model = _model("TimeSeriesTransformerModel", config)

    def call(seed: int, batch: int) -> Call:
        values = {"past_values": images(seed, (batch, 10)), "past_time_features": images(seed, (batch, 10, 1))}
        values |= {"past_observed_mask": torch.ones(batch, 10), "future_values": images(seed, (batch, 4))}
        return Call((), values | {"future_time_features": images(seed, (batch, 4, 1))})

    return built(model, lambda seed: call(seed, 2), lambda seed: call(seed, 3))


# --- caches -----------------------------------------------------------------------------------------------------------


@program("llama_cache_returned")
def llama_cache_returned() -> Program:
    """Return the program of Llama that returns its cache of keys and values."""
    model = _model("LlamaModel", _GROUPED | {"use_cache": True})
    return built(_Plain(model), lambda s: _tokens(s, 2, 8), lambda s: _tokens(s, 3, 12))


class _Plain(nn.Module):
    """Returns the hidden states of a decoder, and the keys and values of its layers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens):  # type: ignore[no-untyped-def] # as modules are written
        """Return tensors only."""
        outputs = self.model(input_ids=tokens)
        return outputs.last_hidden_state, [(layer.keys, layer.values) for layer in outputs.past_key_values.layers]


def _with_static_cache(kind: str) -> Program:
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model = _model(kind, _GROUPED | {"use_cache": True}).eval()
    model.generation_config.use_cache, model.generation_config.cache_implementation = True, "static"
    module = TorchExportableModuleWithStaticCache(model, 2, 8, torch.device("cpu"))

    def call(seed: int) -> Call:
        return Call((), {"input_ids": ids(seed, (2, 1)), "cache_position": torch.tensor([seed - 1])})

    return Program(module.eval(), (call(1), call(2), call(3)), strict=True)


for _name, _kind in (("llama_static_cache", "LlamaForCausalLM"), ("qwen2_static_cache", "Qwen2ForCausalLM")):
    program(_name)(lambda kind=_kind: _with_static_cache(kind))


@program("llama_past")
def llama_past() -> Program:
    """Return the program of Llama with keys and values of earlier tokens as arguments."""
    module = _Continued(_model("LlamaForCausalLM", _GROUPED | {"use_cache": True}))

    def call(seed: int, past: int) -> Call:
        past_keys_and_values = [
            (images(seed + n, (2, 2, past, 8)), images(seed + n + 5, (2, 2, past, 8))) for n in range(2)
        ]
        return Call((ids(seed, (2, 1)), past_keys_and_values))

    return built(module, lambda seed: call(seed, 4), lambda seed: call(seed, 7))


class _Continued(nn.Module):
    """A decoder that takes and returns keys and values."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens, past):  # type: ignore[no-untyped-def]
        """Return the scores of the next token, and the keys and values."""
        from transformers import DynamicCache

        cache = DynamicCache()
        for number, (keys, values) in enumerate(past):
            cache.update(keys, values, number)
        outputs = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
        return outputs.logits, [(layer.keys, layer.values) for layer in outputs.past_key_values.layers]


@program("gpt2_classifier")
def gpt2_classifier() -> Program:
    """Return the program of GPT-2 that classifies by the last token that is no padding."""
    config = {
        "vocab_size": 99,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "use_cache": False,
        "pad_token_id": 0,
    }
    model = _model("GPT2ForSequenceClassification", config | {"num_labels": 3})
    return built(model, lambda s: _tokens(s, 2, 8), lambda s: _tokens(s, 3, 12))


@program("bert_answers")
def bert_answers() -> Program:
    """Return the program of BERT for questions, with types of tokens and all hidden states."""
    model = _model("BertForQuestionAnswering", _TEXT)

    def call(seed: int, batch: int, length: int) -> Call:
        types = (ids(seed + 3, (batch, length)) > 40).long()
        return Call(
            (), {"input_ids": ids(seed, (batch, length)), "token_type_ids": types, "output_hidden_states": True}
        )

    return built(model, lambda seed: call(seed, 2, 8), lambda seed: call(seed, 3, 12))


@program("t5_loss")
def t5_loss() -> Program:
    """Return the program of T5 with labels, which returns a loss."""
    config = {
        "vocab_size": 99,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "use_cache": False,
    }
    model = _model("T5ForConditionalGeneration", config | {"decoder_start_token_id": 0})

    def call(seed: int, batch: int, length: int) -> Call:
        return Call((), {"input_ids": ids(seed, (batch, length)), "labels": ids(seed + 50, (batch, length - 2))})

    return built(model, lambda seed: call(seed, 2, 8), lambda seed: call(seed, 3, 12))


@program("llama_bfloat16")
def llama_bfloat16() -> Program:
    """Return the program of Llama in bfloat16."""
    return built(_model("LlamaModel", _GROUPED).bfloat16(), lambda s: _tokens(s, 2, 8), lambda s: _tokens(s, 3, 12))
