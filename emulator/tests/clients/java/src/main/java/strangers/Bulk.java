package strangers;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Reads all of a container's change feed from its beginning, as the connector for Spark does: each
 * range by a task of its own, page after page, items as objects of Jackson. The arguments are a
 * database and how many tasks run at once; each line of input names a container, and how many items
 * a page may have. Prints how many changes there were, and in how many seconds.
 */
public final class Bulk {
  private Bulk() {}

  public static void main(String[] arguments) throws Exception {
    CosmosClient client = Account.client(ConsistencyLevel.SESSION);
    CosmosDatabase database = client.getDatabase(arguments[0]);
    ExecutorService threads = Executors.newFixedThreadPool(Integer.parseInt(arguments[1]));
    Scanner lines = new Scanner(System.in);
    while (lines.hasNextLine()) {
      String[] wanted = lines.nextLine().split(" ");
      CosmosContainer container = database.getContainer(wanted[0]);
      int page = Integer.parseInt(wanted[1]);
      long began = System.nanoTime();
      List<Callable<Integer>> tasks = new ArrayList<>();
      container.getFeedRanges().forEach(range -> tasks.add(() -> read(container, range, page)));
      int changes = 0;
      for (Future<Integer> done : threads.invokeAll(tasks)) {
        changes += done.get();
      }
      double seconds = (System.nanoTime() - began) / 1e9;
      Report.print(Map.of("changes", changes, "seconds", seconds));
    }
    System.exit(0);
  }

  private static int read(CosmosContainer container, FeedRange range, int most) {
    CosmosChangeFeedRequestOptions options =
        CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range)
            .setMaxItemCount(most);
    int changes = 0;
    for (FeedResponse<ObjectNode> page :
        container.queryChangeFeed(options, ObjectNode.class).iterableByPage()) {
      changes += page.getResults().size();
    }
    return changes;
  }
}
