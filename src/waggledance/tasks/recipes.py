"""The closed table of ReasoningGYM tasks that this package knows: which dataset, made how, judged how.

A recipe's name is all that is ever looked up; no parameter comes from outside. Every dataset here has one
right answer that a rule of ours can judge, makes an item from its index alone and in little time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

SEED = 250908721
"""Of every dataset, for ever: the number of the paper. The index does the rest."""

Entry = Mapping[str, Any]
"""What a ReasoningGYM dataset returns: question, answer, metadata."""


def answer(entry: Entry) -> str:
    """Nothing where many are right and none is given."""
    return "" if entry["answer"] is None else str(entry["answer"])


def premises(entry: Entry) -> str:
    """Many conclusions are right: the rule needs what they must follow from."""
    return "\n".join(str(premise) for premise in entry["metadata"]["premises"])


def within(tolerance: str) -> Callable[[Entry], str]:
    return lambda entry: f"{answer(entry)} {tolerance}"


def board(entry: Entry) -> str:
    """As it was, and one solution."""
    puzzle = "\n".join(" ".join(row) for row in entry["metadata"]["puzzle"])
    return f"{puzzle}\n\n{answer(entry)}"


def five_digits(entry: Entry) -> str:
    """The answer and how far off one may be: ReasoningGYM's 0.001, or one unit of the fifth digit.

    The task says five significant digits; its own answer is rounded so after every step, and one that is
    rounded once at the end differs in one question of seven.
    """
    value = Decimal(answer(entry))
    return f"{value} {max(Decimal('0.001'), Decimal(1).scaleb(value.adjusted() - 4))}"


@dataclass(frozen=True, slots=True)
class Recipe:
    dataset: str
    rule: str
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    truth: Callable[[Entry], str] = answer
    items: int = 0
    """So many there are, over and over; 0: as many as there are numbers."""


SCORER = "scorer"
"""In a rule's place: the dataset's own scorer, which runs in the cage and nowhere else."""


PAPER = {
    "base_conversion": Recipe(
        "base_conversion", "digits", {"min_base": 2, "max_base": 16, "min_value": 0, "max_value": 1000}
    ),
    "basic_arithmetic": Recipe(
        "basic_arithmetic",
        "number",
        {
            "min_terms": 2,
            "max_terms": 6,
            "min_digits": 1,
            "max_digits": 4,
            "operators": ("+", "-", "*", "/"),
            "allow_parentheses": True,
            "allow_negation": True,
            "format_style": "natural",
        },
    ),
    "arc_1d": Recipe("arc_1d", "matrix", {"min_size": 10, "max_size": 30, "num_train": 3}),
    "bf": Recipe("bf", "text", {"difficulty": 1}),
    "propositional_logic": Recipe(
        "propositional_logic",
        "logic",
        {
            "min_vars": 2,
            "max_vars": 4,
            "min_statements": 2,
            "max_statements": 4,
            "min_complexity": 1,
            "max_complexity": 3,
        },
        premises,
    ),
    "fraction_simplification": Recipe(
        "fraction_simplification",
        "fraction",
        {
            "min_value": 1,
            "max_value": 100,
            "min_factor": 2,
            "max_factor": 100,
            "styles": ("plain", "latex_inline", "latex_frac", "latex_dfrac"),
        },
    ),
    "decimal_arithmetic": Recipe(
        "decimal_arithmetic",
        "near",
        {
            "min_terms": 2,
            "max_terms": 6,
            "min_num_decimal_places": 1,
            "max_num_decimal_places": 3,
            "precision": 5,
        },
        five_digits,
    ),
    "calendar_arithmetic": Recipe(
        "calendar_arithmetic",
        "word",
        {
            "year": 2023,
            "tasks": ("count_days", "weekday_of_date", "is_leap_year", "recurring_event_day"),
            "offset_upper_bound": 100,
            "leap_year_range": 200,
        },
    ),
    "binary_matrix": Recipe("binary_matrix", "matrix", {"min_n": 3, "max_n": 10, "p_zero": 0.25}),
}
"""The paper's nine specialties, with the parameters its authors published."""

EASY = {
    "chain_sum": Recipe(
        "chain_sum", "number", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    ),
    "gcd": Recipe("gcd", "number", {"min_numbers": 2, "max_numbers": 2, "min_value": 1, "max_value": 10}),
    "count_bits": Recipe("count_bits", "number", {"min_n": 1, "max_n": 15}),
    "leap_year": Recipe(
        "calendar_arithmetic", "word", {"year": 2023, "tasks": ("is_leap_year",), "leap_year_range": 200}
    ),
    "letter_counting": Recipe("letter_counting", "number", {"min_words": 2, "max_words": 3}),
    "base_conversion": Recipe(
        "base_conversion", "digits", {"min_base": 2, "max_base": 4, "min_value": 0, "max_value": 10}
    ),
    "fraction_simplification": Recipe(
        "fraction_simplification",
        "fraction",
        {"min_value": 1, "max_value": 5, "min_factor": 2, "max_factor": 3, "styles": ("plain",)},
    ),
}
"""What a model of a million weights can get a grip on."""

_JUDGED_BY = {
    "number": """aiw basic_arithmetic binary_alternation chain_sum circuit_logic count_bits count_primes
        decimal_chain_sum gcd largest_island lcm leg_counting letter_counting maze number_sequence products
        rectangle_count rotten_oranges self_reference simple_equations simple_geometry""",
    "digits": "base_conversion",
    "fraction": "dice fraction_simplification",
    "word": """calendar_arithmetic color_cube_rotation course_schedule family_relationships figlet_font
        game_of_life_halting isomorphic_strings mahjong_puzzle needle_haystack ransom_note syllogism
        tsumego""",
    "text": """ab bf caesar_cipher path_star prime_factorization spell_backward string_insertion
        string_manipulation word_sequence_reversal word_sorting""",
    "matrix": """arc_1d arc_agi binary_matrix game_of_life manipulate_matrix rearc rotate_matrix
        spiral_matrix string_splitting string_synthesis sudoku""",
    "expression": "countdown puzzle24",
    "polynomial": "polynomial_multiplication",
    "integral": "simple_integration",
    "complex_number": "complex_arithmetic",
    SCORER: """advanced_geometry bitwise_arithmetic boxnet cryptarithm decimal_arithmetic emoji_mystery
        graph_color group_anagrams jugs kakurasu knights_knaves letter_jumble mini_sudoku modulo_grid
        number_filtering number_sorting palindrome_generation palindrome_partitioning polynomial_equations
        pool_matrix power_function quantum_lock rubiks_cube rush_hour sentence_reordering shortest_path
        survo time_intervals tower_of_hanoi""",
}
"""Datasets that may be named one by one, with their default parameters, by the rule that judges them."""

LISTED = 499
"""Datasets that make a list of 500 first; a prime of them, so that every step leads to another."""

GYM = {
    dataset: Recipe(dataset, rule) for rule, datasets in _JUDGED_BY.items() for dataset in datasets.split()
} | {
    "propositional_logic": Recipe("propositional_logic", "logic", truth=premises),
    "n_queens": Recipe("n_queens", "queens", truth=board),
    "coin_flip": Recipe("coin_flip", "near", truth=within("0.0001")),
    "number_format": Recipe("number_format", "near", truth=within("0.01")),
    "acre": Recipe("acre", "word", items=LISTED),
    "gsm_symbolic": Recipe("gsm_symbolic", "number", items=LISTED),
    "word_ladder": Recipe("word_ladder", SCORER, items=LISTED),
}

REFUSED = {
    "codeio": "differs from one process to the next",
    "composite": "is made of other sources: name those",
    "futoshiki": "takes seconds to make an item",
    "intermediate_integration": "is judged by a scorer that runs the answer",
    "list_functions": "differs from one process to the next",
    "knight_swap": "takes seconds to make an item",
    "sokoban": "takes half a minute to make some items",
    "zebra_puzzles": "takes seconds to make an item",
}
"""Datasets that are not used, and why."""

RECIPES: Mapping[str, Recipe] = {
    f"{group}:{name}": recipe
    for group, recipes in (("paper", PAPER), ("easy", EASY), ("gym", GYM))
    for name, recipe in recipes.items()
}
