import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linear_sum_assignment

from stepformer.errors import InputError
from stepformer.evaluation.hungarian import assign

shapes = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9)


@settings(deadline=None, max_examples=300)
@given(hnp.arrays(np.int64, shapes, elements=st.integers(0, 6)))
def test_same_pairs_as_scipy_even_where_many_are_optimal(weights):
    # values 0..6 make ties in nearly every matrix; the historical MoF needs SciPy's choice among them
    rows, columns = assign(weights)
    expected_rows, expected_columns = linear_sum_assignment(weights, maximize=True)
    assert rows.tolist() == expected_rows.tolist()
    assert columns.tolist() == expected_columns.tolist()


@settings(deadline=None, max_examples=100)
@given(hnp.arrays(np.float64, shapes, elements=st.floats(-1e3, 1e3)))
def test_total_is_scipys_on_floats(weights):
    rows, columns = assign(weights)
    expected = weights[linear_sum_assignment(weights, maximize=True)].sum()
    assert weights[rows, columns].sum() == pytest.approx(expected, abs=1e-6)
    assert len(set(rows.tolist())) == len(set(columns.tolist())) == min(weights.shape)


def test_large_rectangular():
    weights = np.random.default_rng(0).integers(0, 10_000, (150, 220))
    for matrix in (weights, weights.T):
        rows, columns = assign(matrix)
        assert matrix[rows, columns].sum() == matrix[linear_sum_assignment(matrix, maximize=True)].sum()


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0)])
def test_nothing_to_match(shape):
    rows, columns = assign(np.zeros(shape))
    assert len(rows) == len(columns) == 0


@pytest.mark.parametrize("weights", [np.zeros(3), [[np.nan, 1.0]], [[np.inf, 1.0]]])
def test_refuses_what_is_no_matrix_of_numbers(weights):
    with pytest.raises(InputError):
        assign(weights)
