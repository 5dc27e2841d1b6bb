package strangers;

import com.azure.spring.data.cosmos.core.mapping.Container;
import com.azure.spring.data.cosmos.core.mapping.CosmosIndexingPolicy;
import com.azure.spring.data.cosmos.core.mapping.CosmosUniqueKey;
import com.azure.spring.data.cosmos.core.mapping.CosmosUniqueKeyPolicy;
import com.azure.spring.data.cosmos.core.mapping.PartitionKey;
import java.time.Instant;
import java.util.List;
import org.springframework.data.annotation.CreatedBy;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.LastModifiedDate;
import org.springframework.data.annotation.Version;

/** An item in a container with settings of its own. */
@Container(containerName = "orders", ru = "20000", timeToLive = 3600)
@CosmosIndexingPolicy(includePaths = {"/*"}, excludePaths = {"/notes/?"})
@CosmosUniqueKeyPolicy(uniqueKeys = {@CosmosUniqueKey(paths = {"/number"})})
public class Order {
  @Id public String id;
  @PartitionKey public String customer;
  public int number;
  public double total;
  public List<String> tags;
  @Version public String _etag;
  @CreatedBy public String createdBy;
  @LastModifiedDate public Instant changed;

  public Order() {}

  Order(String id, String customer, int number, double total, String... tags) {
    this.id = id;
    this.customer = customer;
    this.number = number;
    this.total = total;
    this.tags = List.of(tags);
  }
}
