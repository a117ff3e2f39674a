from django.db import models


class BatchPolicy(models.TextChoices):
    """What happens to the global batch size when the number of replicas changes."""

    PRESERVE = "preserve", "keep the global batch size"
    SCALE = "scale", "scale the global batch size with the replicas"


class LearningRateRule(models.TextChoices):
    """How the learning rate follows the global batch size under `scale`."""

    NONE = "none", "leave it"
    LINEAR = "linear", "in proportion (Goyal et al. 2017)"
    SQRT = "sqrt", "with the square root (Krizhevsky 2014)"
