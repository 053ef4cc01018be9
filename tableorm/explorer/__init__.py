"""
The explorer of `tableorm browse`: what there is to look at, and the applications that show it.

    conditions   the text of the filter line as a condition, and as Python
    views        what rows a view shows, how its queries are planned, and how its rows and their keys are read
    picture      where the rows of a table are, as text
    app          the application for the terminal, by textual
    web          the same in a browser of this machine, by textual-serve

Nothing is written, and whatever is read is bounded: a page, or a sample. All but `app` and `web` work without textual.
"""
