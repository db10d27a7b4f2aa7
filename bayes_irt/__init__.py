"""Bayesian item response theory for evaluations of language models.

Importing the package loads neither JAX nor NumPyro; each name below loads what it needs when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayes_irt.analysis.comparison import RankingComparison, compare_rankings
    from bayes_irt.analysis.exploration import trait_solutions, trait_strengths
    from bayes_irt.analysis.heterogeneity import HeterogeneityRelation, relate_heterogeneity
    from bayes_irt.analysis.item_dependence import check_item_groups
    from bayes_irt.analysis.items import ItemOverview, describe_items
    from bayes_irt.analysis.leaderboard import Leaderboard
    from bayes_irt.analysis.movers import Movers
    from bayes_irt.analysis.pair import PairComparison, Verdict
    from bayes_irt.analysis.pairs import compare_llms, pair_matrix
    from bayes_irt.analysis.ranking import rank_llms
    from bayes_irt.analysis.structure import check_structure, related_llms, without_duplicates
    from bayes_irt.analysis.traits import (
        describe_traits,
        trait_correlations,
        trait_loadings,
        trait_profile,
        variance_shares,
    )
    from bayes_irt.baselines import baseline_scores
    from bayes_irt.calibration import CalibrationPlan, CalibrationReport, check_calibration
    from bayes_irt.cbmm import fit_cbmm
    from bayes_irt.comparison_plots import plot_accuracy, plot_rank_flow
    from bayes_irt.coverage import CoverageCase, check_coverage, measure_coverage
    from bayes_irt.data_checks import check_responses, identical_rows, linked_components
    from bayes_irt.diagnostics import check_posterior
    from bayes_irt.estimate import PointEstimate, Status
    from bayes_irt.estimate_checks import check_estimate
    from bayes_irt.held_out import (
        HeldOut,
        HeldOutScore,
        ScoreComparison,
        compare_scores,
        held_out_score,
        split_cells,
    )
    from bayes_irt.inference.laplace import fit_laplace
    from bayes_irt.inference.nuts import Sampler, fit_nuts
    from bayes_irt.inference.svi import Optimizer, fit_svi
    from bayes_irt.model_comparison import (
        ComparisonPlan,
        ModelComparison,
        compare_models,
        trait_models,
        usual_models,
    )
    from bayes_irt.model_spec import ModelSpec
    from bayes_irt.pair_calibration import check_pairs, measure_pairs
    from bayes_irt.parameters import Parameters, difficulty
    from bayes_irt.planning import Separation, SuitePlan, plan_suite
    from bayes_irt.plots import plot_leaderboard
    from bayes_irt.posterior import Posterior
    from bayes_irt.predictive import PredictiveChecks, check_predictive
    from bayes_irt.predictive_plots import plot_predictive_cells, plot_predictive_items, plot_predictive_llms
    from bayes_irt.prior_plots import plot_prior_predictive
    from bayes_irt.prior_simulation import PriorPredictive, prior_predictive, simulate_from_prior
    from bayes_irt.priors import (
        Common,
        Exponential,
        Gamma,
        HalfNormal,
        LearnedLocation,
        LearnedScale,
        LearnedShare,
        LogNormal,
        Normal,
        Penalty,
        Priors,
        TruncatedNormal,
        sparse_priors,
    )
    from bayes_irt.ranking_plots import plot_pairs, plot_ranks
    from bayes_irt.readers import read_responses
    from bayes_irt.report import Report, build_report
    from bayes_irt.responses import Responses
    from bayes_irt.scores import ScoreParts, ScoreThreshold
    from bayes_irt.sensitivity import PriorSensitivity, prior_sensitivity
    from bayes_irt.simulate import SimulatedSuite, SuiteDesign, simulate_suite
    from bayes_irt.solvers import Solver
    from bayes_irt.table_columns import TableColumns
    from bayes_irt.trait_plots import plot_trait_correlations, plot_trait_loadings, plot_trait_profile
    from bayes_irt.united_suites import unite_suites

_HOME = {
    "analysis.comparison": ("RankingComparison", "compare_rankings"),
    "analysis.exploration": ("trait_solutions", "trait_strengths"),
    "analysis.heterogeneity": ("HeterogeneityRelation", "relate_heterogeneity"),
    "analysis.item_dependence": ("check_item_groups",),
    "analysis.items": ("ItemOverview", "describe_items"),
    "analysis.leaderboard": ("Leaderboard",),
    "analysis.movers": ("Movers",),
    "analysis.pair": ("PairComparison", "Verdict"),
    "analysis.pairs": ("compare_llms", "pair_matrix"),
    "analysis.ranking": ("rank_llms",),
    "analysis.traits": (
        "describe_traits",
        "trait_correlations",
        "trait_loadings",
        "trait_profile",
        "variance_shares",
    ),
    "analysis.structure": ("check_structure", "related_llms", "without_duplicates"),
    "baselines": ("baseline_scores",),
    "cbmm": ("fit_cbmm",),
    "calibration": ("CalibrationPlan", "CalibrationReport", "check_calibration"),
    "comparison_plots": ("plot_accuracy", "plot_rank_flow"),
    "coverage": ("CoverageCase", "check_coverage", "measure_coverage"),
    "solvers": ("Solver",),
    "data_checks": ("check_responses", "identical_rows", "linked_components"),
    "diagnostics": ("check_posterior",),
    "estimate": ("PointEstimate", "Status"),
    "estimate_checks": ("check_estimate",),
    "held_out": (
        "HeldOut",
        "HeldOutScore",
        "ScoreComparison",
        "compare_scores",
        "held_out_score",
        "split_cells",
    ),
    "inference.laplace": ("fit_laplace",),
    "inference.nuts": ("Sampler", "fit_nuts"),
    "inference.svi": ("Optimizer", "fit_svi"),
    "model_comparison": (
        "ComparisonPlan",
        "ModelComparison",
        "compare_models",
        "trait_models",
        "usual_models",
    ),
    "model_spec": ("ModelSpec",),
    "pair_calibration": ("check_pairs", "measure_pairs"),
    "parameters": ("Parameters", "difficulty"),
    "planning": ("Separation", "SuitePlan", "plan_suite"),
    "plots": ("plot_leaderboard",),
    "posterior": ("Posterior",),
    "predictive": ("PredictiveChecks", "check_predictive"),
    "predictive_plots": ("plot_predictive_cells", "plot_predictive_items", "plot_predictive_llms"),
    "prior_plots": ("plot_prior_predictive",),
    "prior_simulation": ("PriorPredictive", "prior_predictive", "simulate_from_prior"),
    "priors": (
        "Common",
        "Exponential",
        "Gamma",
        "HalfNormal",
        "LearnedLocation",
        "LearnedScale",
        "LearnedShare",
        "LogNormal",
        "Normal",
        "Penalty",
        "Priors",
        "TruncatedNormal",
        "sparse_priors",
    ),
    "ranking_plots": ("plot_pairs", "plot_ranks"),
    "readers": ("read_responses",),
    "report": ("Report", "build_report"),
    "responses": ("Responses",),
    "sensitivity": ("PriorSensitivity", "prior_sensitivity"),
    "scores": ("ScoreParts", "ScoreThreshold"),
    "simulate": ("SimulatedSuite", "SuiteDesign", "simulate_suite"),
    "table_columns": ("TableColumns",),
    "united_suites": ("unite_suites",),
    "trait_plots": ("plot_trait_correlations", "plot_trait_loadings", "plot_trait_profile"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "CalibrationPlan",
    "CalibrationReport",
    "Common",
    "ComparisonPlan",
    "CoverageCase",
    "Exponential",
    "Gamma",
    "HalfNormal",
    "HeldOut",
    "HeldOutScore",
    "HeterogeneityRelation",
    "ItemOverview",
    "Leaderboard",
    "LearnedLocation",
    "LearnedScale",
    "LearnedShare",
    "LogNormal",
    "ModelComparison",
    "ModelSpec",
    "Movers",
    "Normal",
    "Optimizer",
    "PairComparison",
    "Parameters",
    "Penalty",
    "PointEstimate",
    "Posterior",
    "PredictiveChecks",
    "PriorPredictive",
    "PriorSensitivity",
    "Priors",
    "RankingComparison",
    "Report",
    "Responses",
    "Sampler",
    "ScoreComparison",
    "ScoreParts",
    "ScoreThreshold",
    "Separation",
    "SimulatedSuite",
    "Solver",
    "Status",
    "SuiteDesign",
    "SuitePlan",
    "TableColumns",
    "TruncatedNormal",
    "Verdict",
    "baseline_scores",
    "build_report",
    "check_calibration",
    "check_coverage",
    "check_estimate",
    "check_item_groups",
    "check_pairs",
    "check_posterior",
    "check_predictive",
    "check_responses",
    "check_structure",
    "compare_llms",
    "compare_models",
    "compare_rankings",
    "compare_scores",
    "describe_items",
    "describe_traits",
    "difficulty",
    "fit_cbmm",
    "fit_laplace",
    "fit_nuts",
    "fit_svi",
    "held_out_score",
    "identical_rows",
    "linked_components",
    "measure_coverage",
    "measure_pairs",
    "pair_matrix",
    "plan_suite",
    "plot_accuracy",
    "plot_leaderboard",
    "plot_pairs",
    "plot_predictive_cells",
    "plot_predictive_items",
    "plot_predictive_llms",
    "plot_prior_predictive",
    "plot_rank_flow",
    "plot_ranks",
    "plot_trait_correlations",
    "plot_trait_loadings",
    "plot_trait_profile",
    "prior_predictive",
    "prior_sensitivity",
    "rank_llms",
    "read_responses",
    "relate_heterogeneity",
    "related_llms",
    "simulate_from_prior",
    "simulate_suite",
    "sparse_priors",
    "split_cells",
    "trait_correlations",
    "trait_loadings",
    "trait_models",
    "trait_profile",
    "trait_solutions",
    "trait_strengths",
    "unite_suites",
    "usual_models",
    "variance_shares",
    "without_duplicates",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bayes_irt' has no attribute {name!r}")
    return getattr(import_module(f"bayes_irt.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
