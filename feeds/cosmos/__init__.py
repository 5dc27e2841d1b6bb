"""A container of Azure Cosmos DB as a feed."""

from .feed import MODES, CosmosFeed, Mode, open_cosmos

__all__ = ["MODES", "CosmosFeed", "Mode", "open_cosmos"]
