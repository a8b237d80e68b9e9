"""How good the probabilities of decisions are: accuracy, Brier score, log loss, calibration error, each with an interval.

Works on arrays of predictions: scores [predictions, candidates] padded with -inf, the place of the right candidate, and the
question that each prediction belongs to. A question asked in several orders counts once: its predictions share its weight, and
the bootstrap draws questions. Called by bench/decisions.py.

Brier score: squared distance between the probabilities and the truth, summed over the candidates (0 best, 2 worst). Log loss:
-ln of the right candidate's probability (at least 1e-12). Calibration error (ECE): over ten equal bins of the decision's
probability, the mean distance between it and the share of right decisions, weighted by the bin.
"""

import numpy as np

BINS = 10
LEAST = 1e-12  # probability, in the log loss
TEMPERATURES = np.exp(np.linspace(np.log(0.02), np.log(50), 120))


def padded(rows):
    """float64 [rows, longest] of lists of scores; what a row lacks is -inf."""
    out = np.full((len(rows), max(map(len, rows))), -np.inf)
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
    return out


def softmax(scores, temperature=1.0):
    """Probabilities of each row of scores divided by the temperature (a number, or one per row)."""
    shifted = (scores - scores.max(1, keepdims=True)) / np.reshape(temperature, (-1, 1))
    weights = np.exp(shifted)
    return weights / weights.sum(1, keepdims=True)


class Predictions:
    """Decisions of one rule: probabilities [predictions, candidates] and what follows from them, per prediction."""

    def __init__(self, scores, answers, temperature=1.0):
        self.shares = shares = softmax(scores, temperature)
        rows = np.arange(len(answers))
        self.best = scores.argmax(1)  # the first wins ties
        self.confidence = shares[rows, self.best]
        self.right = (self.best == answers).astype(float)
        self.of_answer = shares[rows, answers]
        self.brier = (shares**2).sum(1) - 2 * self.of_answer + 1
        self.log_loss = -np.log(np.maximum(self.of_answer, LEAST))
        self.bin = np.minimum((self.confidence * BINS).astype(int), BINS - 1)


def weights(items, resamples, seed):
    """Weight of each prediction: the plain one [1, predictions], and one row per resampling of the questions."""
    items = np.unique(items, return_inverse=True)[1]
    count = items.max() + 1
    share = 1 / np.bincount(items)[items] / count
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    return share[None], drawn[:, items] * share


def measures(found, weight):
    """{name: [rows of weight]} of Predictions under each row of weights."""
    gap = np.stack([weight[:, found.bin == k] @ (found.confidence - found.right)[found.bin == k] for k in range(BINS)])
    return {
        "accuracy": weight @ found.right,
        "brier": weight @ found.brier,
        "log_loss": weight @ found.log_loss,
        "ece": np.abs(gap).sum(0),
    }


def interval(value, samples):
    """[value, lower, upper]: the middle 95 % of the samples."""
    return [round(float(x), 4) for x in (value, *np.quantile(samples, (0.025, 0.975)))]


def intervals(found, weight):
    """{name: [value, lower, upper]} of every measure."""
    plain, drawn = (measures(found, rows) for rows in weight)
    return {name: interval(plain[name][0], drawn[name]) for name in plain}


def bins(found, weight):
    """[[weight, mean probability, share of right decisions]] of the bins that hold anything."""
    rows, share = [], weight[0][0]
    for k in range(BINS):
        inside = found.bin == k
        total = share[inside].sum()
        if total:
            means = [share[inside] @ x[inside] / total for x in (found.confidence, found.right)]
            rows.append([round(float(x), 4) for x in (total, *means)])
    return rows


def best_temperature(scores, answers, weight):
    """The temperature with the lowest log loss, of TEMPERATURES."""
    losses = [weight @ Predictions(scores, answers, t).log_loss for t in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])


def fitted(scores, answers, items, weight):
    """What a temperature chosen on one half of the questions does on the other, and the one chosen on all."""
    temperature = np.empty(len(answers))
    for half in (0, 1):
        learn = items % 2 != half
        if not learn.any():
            learn = ~learn
        temperature[items % 2 == half] = best_temperature(scores[learn], answers[learn], weight[0][0, learn])
    found = intervals(Predictions(scores, answers, temperature), weight)
    whole = best_temperature(scores, answers, weight[0][0])
    return {"temperature": round(whole, 3), **{name: found[name] for name in ("brier", "log_loss", "ece")}}


def order_bias(found, answers, orders, items, weight):
    """How decisions depend on the place in the list. `orders`: [predictions][place] -> option.

    `changed`: share of questions whose chosen option is not the same in all orders. `chosen`: share of decisions per place; an
    unbiased rule has equal shares under rotations. `right`: accuracy by place of the right option. `averaged`: accuracy when the
    probabilities of an option are averaged over its places before deciding."""
    options = np.array([order[place] for order, place in zip(orders, found.best, strict=True)])
    places = max(map(len, orders))
    share = weight[0][0]
    changed = np.empty(len(items))
    averaged = np.empty(len(items))
    for item in np.unique(items):
        rows = np.flatnonzero(items == item)
        changed[rows] = len(set(options[rows])) > 1
        total = np.zeros(places)
        for row in rows:
            total[list(orders[row])] += found.shares[row, : len(orders[row])]
        averaged[rows] = total.argmax() == orders[rows[0]][answers[rows[0]]]
    chosen = [round(float(share[found.best == place].sum()), 4) for place in range(places)]
    right = [share[answers == place] @ found.right[answers == place] / share[answers == place].sum() for place in range(places)]
    both = {name: interval(weight[0][0] @ x, weight[1] @ x) for name, x in (("changed", changed), ("averaged", averaged))}
    return {**both, "chosen": chosen, "right": [round(float(x), 4) for x in right]}
