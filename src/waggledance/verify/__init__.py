"""From hostile text to reward.

`verify` takes what stands between the answer tags and asks the task's rule. No rule evaluates what it reads,
raises on it, or takes time that its writer can choose; `cage` is for what may do so all the same.
"""

from waggledance.verify.answer import LIMIT_BYTES, extract, is_modest
from waggledance.verify.rules import RULES, right_answer
from waggledance.verify.verdict import Judge, Uncaged, verify

__all__ = ["LIMIT_BYTES", "RULES", "Judge", "Uncaged", "extract", "is_modest", "right_answer", "verify"]
