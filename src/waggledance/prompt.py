"""What a model is told before the question, unless it is told something else."""

SYSTEM_PROMPT = (
    "Think about the question, then give the final answer between <answer> and </answer> tags. "
    "Only what stands between the last such tags counts."
)
