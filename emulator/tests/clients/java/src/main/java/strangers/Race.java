package strangers;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;

/**
 * Reads a feed as fast as it can, once for each line of input: the container, how many changes it
 * has, and a prefix for the leases. Prints how many changes came after the first page, in how many
 * seconds, and with how many seconds of CPU.
 */
public final class Race {
  private static final OperatingSystemMXBean SYSTEM =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
  private final int wanted;
  private final CountDownLatch all = new CountDownLatch(1);
  private long first;
  private long last;
  private long firstCpu;
  private long lastCpu;
  private int counted;
  private int early;

  private Race(int wanted) {
    this.wanted = wanted;
  }

  public static void main(String[] arguments) throws Exception {
    CosmosAsyncClient client = Account.asyncClient();
    CosmosAsyncDatabase database = client.getDatabase(arguments[0]);
    Scanner lines = new Scanner(System.in);
    while (lines.hasNextLine()) {
      String[] words = lines.nextLine().split(" ");
      new Race(Integer.parseInt(words[1])).run(database, words[0], words[2]);
    }
    System.exit(0);
  }

  private void run(CosmosAsyncDatabase database, String feed, String prefix) throws Exception {
    ChangeFeedProcessor processor =
        new ChangeFeedProcessorBuilder()
            .hostName("java")
            .feedContainer(database.getContainer(feed))
            .leaseContainer(database.getContainer("leases"))
            .handleChanges(this::count)
            .options(
                new ChangeFeedProcessorOptions()
                    .setLeasePrefix(prefix)
                    .setStartFromBeginning(true)
                    .setMaxItemCount(1000)
                    .setFeedPollDelay(Duration.ofMillis(100))
                    .setLeaseAcquireInterval(Duration.ofMillis(200)))
            .buildChangeFeedProcessor();
    processor.start().block();
    all.await();
    processor.stop().block();
    double seconds = (last - first) / 1e9;
    double cpu = (lastCpu - firstCpu) / 1e9;
    Report.print(Map.of("changes", counted - early, "seconds", seconds, "cpu", cpu));
  }

  private synchronized void count(List<JsonNode> changes) {
    last = System.nanoTime();
    lastCpu = SYSTEM.getProcessCpuTime();
    counted += changes.size();
    if (early == 0) {
      first = last;
      firstCpu = lastCpu;
      early = counted;
    }
    if (counted >= wanted) {
      all.countDown();
    }
  }
}
