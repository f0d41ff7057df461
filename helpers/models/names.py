"""Names of models: short ones, those on the hub, and random models of a real shape."""

HUB_NAMES = {
    "gpt2-xl": "openai-community/gpt2-xl",
    "gpt-j-6b": "EleutherAI/gpt-j-6b",
    "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "llama2-13b": "meta-llama/Llama-2-13b-hf",
    "llama3-8b-instruct": "meta-llama/Meta-Llama-3-8B-Instruct",
    "qwen2.5-7b-instruct": "Qwen/Qwen2.5-7B-Instruct",
}
# The embedded models under their hub names: their weights here are 4-bit files, dequantised.
EMBEDDED_NAMES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": "smollm2-135m",
    "google/gemma-3-270m": "gemma3-270m",
}
SHAPE_PREFIX = "shape:"
SHAPE_TOKENIZER = "smollm2-135m"  # an embedded model, whose words and context templates shapes take
