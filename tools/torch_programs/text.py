"""Networks of the package transformers for text, with two small layers each."""

from __future__ import annotations

from typing import Any

from tools.torch_programs.program import Call, Program, built, ids, program

_BERT = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
_LLAMA = _BERT | {"num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}
_GPT = {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}
_T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False}
_BART = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "use_cache": False,
}  # fmt: skip
_MOE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

_ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", _BERT),
    "distilbert": ("DistilBert", {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "roberta": ("Roberta", _BERT),
    "camembert": ("Camembert", _BERT),
    "xlm_roberta": ("XLMRoberta", _BERT),
    "ernie": ("Ernie", _BERT),
    "albert": ("Albert", _BERT | {"embedding_size": 16}),
    "electra": ("Electra", _BERT | {"embedding_size": 16}),
    "deberta": ("Deberta", _BERT),
    "deberta_v2": ("DebertaV2", _BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "mpnet": ("MPNet", _BERT),
    "squeezebert": ("SqueezeBert", _BERT | {"embedding_size": 32}),
    "convbert": ("ConvBert", _BERT | {"embedding_size": 32}),
    "nystromformer": ("Nystromformer", _BERT | {"segment_means_seq_len": 9, "num_landmarks": 3}),
    "mobilebert": ("MobileBert", _BERT | {"embedding_size": 16, "intra_bottleneck_size": 16}),
    "fnet": ("FNet", _BERT),
    "xlnet": ("XLNet", {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    "layoutlm": ("LayoutLM", _BERT | {"max_2d_position_embeddings": 64}),
    "modernbert": ("ModernBert", _BERT | {"pad_token_id": 0, "attn_implementation": "sdpa"}),
}
_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", _GPT),
    "gptj": ("GPTJ", _GPT | {"rotary_dim": 4}),
    "gpt_neox": ("GPTNeoX", _BERT | {"use_cache": False}),
    "opt": ("OPT", _BERT | {"ffn_dim": 64, "word_embed_proj_dim": 32, "use_cache": False}),
    "bloom": ("Bloom", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "falcon": ("Falcon", _BERT | {"use_cache": False}),
    "llama": ("Llama", _LLAMA),
    "mistral": ("Mistral", _LLAMA | {"sliding_window": 4}),
    "mixtral": ("Mixtral", _LLAMA | _MOE),
    "qwen2": ("Qwen2", _LLAMA),
    "qwen2_moe": ("Qwen2Moe", _LLAMA | _MOE | {"shared_expert_intermediate_size": 32}),
    "qwen3": ("Qwen3", _LLAMA | {"head_dim": 8}),
    "gemma": ("Gemma", _LLAMA | {"head_dim": 8}),
    "gemma2": ("Gemma2", _LLAMA | {"head_dim": 8, "sliding_window": 4}),
    "phi": ("Phi", _LLAMA),
    "phi3": ("Phi3", _LLAMA),
    "olmo": ("Olmo", _LLAMA),
    "stablelm": ("StableLm", _LLAMA),
    "starcoder2": ("Starcoder2", _LLAMA),
    "granite": ("Granite", _LLAMA),
    "cohere": ("Cohere", _LLAMA),
    "persimmon": ("Persimmon", _LLAMA),
    "mamba": ("Mamba", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False}),
    "mamba2": (
        "Mamba2",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 8, "state_size": 8,
         "n_groups": 2, "chunk_size": 4, "use_cache": False},
    ),
    "rwkv": ("Rwkv", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False}),
}  # fmt: skip


def _model(family: str, config: dict[str, Any], suffix: str = "Model") -> Any:
    import transformers

    return getattr(transformers, f"{family}{suffix}")(getattr(transformers, f"{family}Config")(**config))


def _register(name: str, family: str, config: dict[str, Any]) -> None:
    def build() -> Program:
        return built(_model(family, config), lambda seed: _text(seed, 2, 9), lambda seed: _text(seed, 3, 12))

    program(name)(build)


def _text(seed: int, batch: int, length: int) -> Call:
    return Call((ids(seed, (batch, length)),))


for _name, (_family, _config) in {**_ENCODERS, **_DECODERS}.items():
    _register(_name, _family, _config)


@program("bert_mask")
def bert_mask() -> Program:
    """Return the program of BERT for classification with a mask by keyword."""

    def call(seed: int, batch: int, length: int) -> Call:
        mask = (ids(seed + 10, (batch, length)) > 20).long()
        mask[:, 0] = 1
        return Call((ids(seed, (batch, length)),), {"attention_mask": mask})

    model = _model("Bert", _BERT | {"num_labels": 3}, "ForSequenceClassification")
    return built(model, lambda seed: call(seed, 2, 9), lambda seed: call(seed, 3, 12))


@program("llama_head")
def llama_head() -> Program:
    """Return the program of Llama with the head of a language model."""
    return built(_model("Llama", _LLAMA, "ForCausalLM"), lambda s: _text(s, 2, 9), lambda s: _text(s, 3, 5))


@program("t5_encoder")
def t5_encoder() -> Program:
    """Return the program of the encoder of T5."""
    return built(_model("T5", _T5, "EncoderModel"), lambda s: _text(s, 2, 9), lambda s: _text(s, 3, 12))


def _pair(seed: int, batch: int, length: int) -> Call:
    return Call((), {"input_ids": ids(seed, (batch, length)), "decoder_input_ids": ids(seed + 50, (batch, length - 2))})


for _name, _family, _config in (("t5", "T5", _T5), ("bart", "Bart", _BART), ("pegasus", "Pegasus", _BART)):

    def _both(family: str = _family, config: dict[str, Any] = _config) -> Program:
        return built(_model(family, config), lambda s: _pair(s, 2, 9), lambda s: _pair(s, 3, 12))

    program(_name)(_both)
