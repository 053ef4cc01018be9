"""
Rows as they are stored, on their way from one database to another, to files, and from files.

    report     what a transfer has done so far
    content    whether two rows have the same content
    writing    rows to a table that may have some of them already
    blobs      the blobs that rows name
    copying    from one database to another, and the comparison of two
    formats    JSON Lines and CSV
    parquet    Parquet, with pyarrow
    files      from a table to a file, and from a file to a table
"""
