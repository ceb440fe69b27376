"""Results on their way to a sink: row groups are bounded by rows and by bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.state.staging import BYTES, ROWS, Staging


@pytest.mark.parametrize(("width", "n_rows"), [(1, ROWS), (400, BYTES // 400)])
def test_a_row_group_is_full_by_rows_or_by_bytes(tmp_path: Path, width: int, n_rows: int) -> None:
    schema = pa.schema([("text", pa.string())])
    (tmp_path / "staged").mkdir()
    writer = Staging(str(tmp_path), "staged").writer(schema, 0, 0)
    batch = pa.array(["x" * width] * 1000)
    n_batches = 2 * n_rows // 1000
    for _ in range(n_batches):
        writer.write([batch])
    staged = writer.close()
    assert staged is not None
    found = pq.ParquetFile(tmp_path / staged.name).metadata
    assert found.num_rows == writer.rows == 1000 * n_batches
    sizes = [found.row_group(i).num_rows for i in range(found.num_row_groups)]
    assert max(sizes) <= n_rows + 1000
    assert sizes[0] >= 0.9 * n_rows
