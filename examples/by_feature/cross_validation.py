"""Scikit-learn's tools on irregular series: cross-validation, grid search, calibration.

    python examples/by_feature/cross_validation.py

An `IrregularSeries` is split by series, never by rows. The estimators follow scikit-learn's conventions, so every tool
works that only indexes X and passes it on. Tools that build new arrays from X, such as bagging and boosting, do not
work, and there are no sample weights. Scaling is fitted inside each fold, on its training series only.
"""

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

import neuralcde as nc


def waves(count: int, *, seed: int) -> tuple[nc.IrregularSeries, np.ndarray]:
    """Slow and fast waves, each observed at 12 irregular times."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["fast", "slow"], count)
    pairs = []
    for name in kind:
        times = np.sort(rng.uniform(0, 6, 12))
        wave = np.sin((2 if name == "fast" else 1) * times + rng.uniform(0, 6)) + rng.normal(0, 0.2, 12)
        pairs.append((times, wave[:, None]))
    return nc.IrregularSeries.from_list(pairs), kind


def main() -> None:
    """Cross-validate, search, calibrate."""
    series, kind = waves(120, seed=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    quick = {"max_epochs": 12, "batch_size": 16, "learning_rate": 2e-2, "validation_fraction": 0}
    clf = nc.NeuralCDEClassifier(hidden=8, depth=1, random_state=0, **quick)
    scores = cross_val_score(clf, series, kind, cv=folds)
    print(f"accuracy {scores.mean():.2f}, by fold {np.round(scores, 2).tolist()}")

    search = GridSearchCV(clf, {"path": ["linear", "hermite"]}, cv=folds).fit(series, kind)
    print(f"best of {len(search.cv_results_['params'])}: {search.best_params_}, accuracy {search.best_score_:.2f}")

    calibrated = CalibratedClassifierCV(clf.set_params(**search.best_params_), cv=folds).fit(series, kind)
    unseen, truth = waves(100, seed=1)
    print(f"calibrated, on unseen series: accuracy {calibrated.score(unseen, truth):.2f}")


if __name__ == "__main__":
    main()
