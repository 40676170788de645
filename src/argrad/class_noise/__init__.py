"""Laws over classes, from which losses for large vocabularies draw their negatives."""
