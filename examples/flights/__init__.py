"""
Flights out of New York in 2013, with the weather, kept in tables: tableorm's main job on real data.
"""
