"""Rewards: safety first by a gate, and the forms it is compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opensage_agents.safety_cot.scores import Scores, checked

Form = Literal["gate", "smooth", "sum", "product"]
FORMS: tuple[Form, ...] = ("gate", "smooth", "sum", "product")
INVALID = -1.0
Floats = NDArray[np.float64]


def reward(
    scores: Scores, tau: float = 0.5, w_h: float = 0.6, w_f: float = 0.4, form: Form = "gate", *,
    temperature: float = 0.005, w_s: float = 1 / 3,
) -> float:  # fmt: skip
    """The reward of one sample, a number from -1 to 2.

    With S the lower of both safeties and U = w_h H + w_f F:

    - "gate": 0 below tau, else 1 + U. Nothing buys back what is unsafe.
    - "smooth": sigma((S - tau) / temperature) (1 + U), for gradients.
    - "sum": w_s S + (1 - w_s) U, for comparison: helpfulness does buy back a leak.
    - "product": S U, for comparison.

    Args:
        scores: of a judge.
        tau: safety from which a sample counts as safe, in (0, 1).
        w_h: weight of helpfulness.
        w_f: weight of faithfulness; the sum of both is 1.
        form: see above.
        temperature: of the smooth form.
        w_s: weight of safety in the sum, in [0, 1].

    Raises:
        ValueError: a weight, tau, the form or a score is out of its range.

    Source: reconstruction from the abstract of "More Sail than Ballast" (ICML 2026); the formula is ours.
    """
    checked_weights(tau, w_h, w_f, form, temperature, w_s)
    checked(scores, "given scores")
    if not scores.valid:
        return INVALID
    useful = w_h * scores.H + w_f * scores.F
    if form == "gate":
        return 1.0 + useful if tau <= scores.S else 0.0
    if form == "smooth":
        return float(_sigmoid(np.asarray((scores.S - tau) / temperature))) * (1.0 + useful)
    return w_s * scores.S + (1 - w_s) * useful if form == "sum" else scores.S * useful


def reward_batch(
    scores: Sequence[Scores], tau: float = 0.5, w_h: float = 0.6, w_f: float = 0.4, form: Form = "gate", *,
    temperature: float = 0.005, w_s: float = 1 / 3,
) -> Floats:  # fmt: skip
    """The rewards of n samples, shape (n,). See `reward`."""
    for each in scores:
        checked(each, "given scores")
    table = np.array([(each.S, each.H, each.F) for each in scores], dtype=np.float64).reshape(-1, 3)
    valid = np.array([each.valid for each in scores], dtype=bool)
    return reward_array(
        table[:, 0], table[:, 1], table[:, 2], valid, tau, w_h, w_f, form, temperature=temperature, w_s=w_s
    )


def reward_array(
    S: Floats, H: Floats, F: Floats, valid: NDArray[np.bool_] | None = None, tau: float = 0.5, w_h: float = 0.6,
    w_f: float = 0.4, form: Form = "gate", *, temperature: float = 0.005, w_s: float = 1 / 3,
) -> Floats:  # fmt: skip
    """The same for arrays of one shape, whose numbers were checked before."""
    checked_weights(tau, w_h, w_f, form, temperature, w_s)
    useful = w_h * H + w_f * F
    if form == "gate":
        found = np.where(tau <= S, 1.0 + useful, 0.0)
    elif form == "smooth":
        found = _sigmoid((S - tau) / temperature) * (1.0 + useful)
    else:
        found = w_s * S + (1 - w_s) * useful if form == "sum" else S * useful
    return found if valid is None else np.where(valid, found, INVALID)


def checked_weights(tau: float, w_h: float, w_f: float, form: str, temperature: float = 1.0, w_s: float = 0.5) -> None:
    """See `reward`.

    Raises:
        ValueError: what is out of its range, by name.
    """
    if form not in FORMS:
        raise ValueError(f"form {form!r}: it is one of {', '.join(FORMS)}")
    if not 0.0 < tau < 1.0:
        raise ValueError(f"tau is {tau:g}: it lies between 0 and 1, both excluded")
    if not (w_h >= 0 and w_f >= 0 and math.isclose(w_h + w_f, 1.0, abs_tol=1e-9)):
        raise ValueError(f"w_h = {w_h:g} and w_f = {w_f:g}: neither is negative and their sum is 1")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature is {temperature:g}: it is above 0")
    if not 0.0 <= w_s <= 1.0:
        raise ValueError(f"w_s is {w_s:g}: it lies from 0 to 1")


def _sigmoid(x: Floats) -> Floats:
    found: Floats = 0.5 * (1.0 + np.tanh(0.5 * x))  # never overflows
    return found
