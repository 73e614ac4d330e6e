"""Features and phrases of many videos: the store, readers for public datasets, and the simulator."""
