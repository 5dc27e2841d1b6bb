"""A container of Azure Cosmos DB as a feed."""

from changefeed.feeds.cosmos.feed import MODES, CosmosFeed, Mode, open_cosmos

__all__ = ["MODES", "CosmosFeed", "Mode", "open_cosmos"]
