"""Logs of OBP, and what its estimators say of a policy, for public_obp.py, in the environment of the peers.

    python obp_estimators.py synthetic SEED log.npz         # its synthetic bandit, a world of its own for every seed
    python obp_estimators.py open-bandit SEED log.npz       # a bootstrap of its sample of Open Bandit; 0: as it is

log.npz gets codes [n, F] and numbers [n, m] (the context), action, reward, pscore [n], and chances [n, K] of the policy
that is to be evaluated. The last line is JSON: the true value, its standard error, and of each estimator the value, the
ends of a 95% interval from 100 bootstraps, and the seconds.

Synthetic: logistic rewards, softmax of linear scores as the log's policy; the policy is IPWLearner's by logistic
regression, from as many rows of its own. Open Bandit: three positions, 80 items drawn evenly; the policy is the
Bernoulli Thompson sampling that ran beside it, whose own log has the true value. Rewards are predicted by logistic
regression in three folds, as in OBP's examples. Version 0.4.1 has no tuning: τ and λ are 100.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

obp, ope, worlds, policies = map(import_module, ("obp", "obp.ope", "obp.dataset", "obp.policy"))
pd, encoders = map(import_module, ("pandas", "sklearn.preprocessing"))
LogisticRegression = import_module("sklearn.linear_model").LogisticRegression

ROWS, ACTIONS, CONTEXT, FRESH = 10_000, 10, 5, 400_000
DRAWS = 200_000  # of the Thompson sampling, for its chances
SHRINKAGE = 100
ESTIMATORS = [
    ope.DirectMethod(),
    ope.InverseProbabilityWeighting(),
    ope.SelfNormalizedInverseProbabilityWeighting(),
    ope.DoublyRobust(),
    ope.SelfNormalizedDoublyRobust(),
    ope.SwitchDoublyRobust(tau=SHRINKAGE),
    ope.DoublyRobustWithShrinkage(lambda_=SHRINKAGE),
]


def synthetic(seed: int) -> Any:
    """Feedback, its columns, `[n, K, 1]` chances of the policy, the truth over fresh contexts and its error."""
    world = worlds.SyntheticBanditDataset(
        n_actions=ACTIONS,
        dim_context=CONTEXT,
        reward_function=worlds.logistic_reward_function,
        behavior_policy_function=worlds.linear_behavior_policy,
        random_state=seed,
    )
    taught, feedback = (world.obtain_batch_bandit_feedback(n_rounds=ROWS) for _ in range(2))
    policy = policies.IPWLearner(n_actions=ACTIONS, base_classifier=LogisticRegression(C=100, max_iter=10_000))
    policy.fit(**{name: taught[name] for name in ("context", "action", "reward", "pscore")})
    fresh = np.random.default_rng(seed).normal(size=(FRESH, CONTEXT))
    values = (world.calc_expected_reward(fresh) * policy.predict(fresh)[:, :, 0]).sum(axis=1)
    feedback["position"] = None
    columns = {"codes": np.empty((ROWS, 0), np.int64), "numbers": feedback["context"]}
    return feedback, columns, policy.predict(feedback["context"]), values.mean(), values.std() / np.sqrt(FRESH)


def open_bandit(seed: int) -> Any:
    """The same of the sample: the truth is the mean of the other log."""
    folder = Path(str(obp.__file__)).parent / "dataset" / "obd"
    log, other = (pd.read_csv(folder / p / "all" / "all.csv", index_col=0) for p in ("random", "bts"))
    items = pd.read_csv(folder / "random" / "all" / "item_context.csv", index_col=0)
    log = log.sort_values("timestamp")
    if seed:
        log = log.iloc[np.random.RandomState(seed).choice(len(log), size=len(log), replace=True)]
    users = log[[name for name in log.columns if name.startswith("user_feature")]]
    position = log["position"].to_numpy() - 1
    feedback = {
        "n_rounds": len(log),
        "n_actions": len(items),
        "context": pd.get_dummies(users, drop_first=True).to_numpy(float),
        "action_context": items.apply(encoders.LabelEncoder().fit_transform).assign(
            item_feature_0=items["item_feature_0"]
        ),
        "action": log["item_id"].to_numpy(),
        "position": position,
        "reward": log["click"].to_numpy(),
        "pscore": log["propensity_score"].to_numpy(),
    }
    feedback["action_context"] = feedback["action_context"].drop(columns=["item_id"], errors="ignore").to_numpy(float)
    policy = policies.BernoulliTS(
        n_actions=len(items), len_list=3, is_zozotown_prior=True, campaign="all", random_state=12345
    )
    chances = policy.compute_batch_action_dist(n_sim=DRAWS, n_rounds=len(log))
    codes = np.column_stack([*(users[name].astype("category").cat.codes for name in users), position])
    columns = {"codes": codes, "numbers": np.empty((len(log), 0))}
    clicks = other["click"].to_numpy()
    return feedback, columns, chances, clicks.mean(), clicks.std() / np.sqrt(len(clicks))


def main(ground: str, seed: int, path: str) -> None:
    """Write the log, print the answer."""
    warnings.filterwarnings("ignore")
    feedback, columns, chances, truth, error = {"synthetic": synthetic, "open-bandit": open_bandit}[ground](seed)
    rows = np.arange(len(chances))
    position = np.zeros_like(rows) if feedback["position"] is None else feedback["position"]
    np.savez(
        path,
        **columns,
        **{name: feedback[name] for name in ("action", "reward", "pscore")},
        chances=chances[rows, :, position],
    )
    began = time.perf_counter()
    expected = ope.RegressionModel(
        n_actions=chances.shape[1],
        len_list=chances.shape[2],
        action_context=feedback["action_context"],
        base_model=LogisticRegression(C=100, max_iter=10_000, random_state=12345),
    ).fit_predict(
        **{name: feedback[name] for name in ("context", "action", "reward", "pscore", "position")},
        n_folds=3,
        random_state=12345,
    )
    told = {}
    for estimator in ESTIMATORS:
        asked = ope.OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=[estimator])
        start = time.perf_counter()
        about = {"action_dist": chances, "estimated_rewards_by_reg_model": expected}
        (name, value), *_ = asked.estimate_policy_values(**about).items()
        ends = asked.estimate_intervals(**about, n_bootstrap_samples=100, random_state=12345)[name]
        low, high = (v for key, v in ends.items() if "%" in key)
        told[name] = [float(value), *sorted((float(low), float(high))), time.perf_counter() - start]
    seconds = time.perf_counter() - began
    print(json.dumps({"truth": float(truth), "truth_se": float(error), "told": told, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
