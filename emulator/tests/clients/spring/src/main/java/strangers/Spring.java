package strangers;

import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.spring.data.cosmos.core.CosmosTemplate;
import com.azure.spring.data.cosmos.core.query.CosmosPageRequest;
import com.azure.spring.data.cosmos.exception.CosmosAccessException;
import com.azure.spring.data.cosmos.exception.CosmosConflictException;
import com.azure.spring.data.cosmos.exception.CosmosPreconditionFailedException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.StreamSupport;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;

/**
 * Spring Data Cosmos by its usual use: repositories, blocking and reactive. Prints a line of JSON
 * for each story: what it was, how it ended, and why.
 */
public final class Spring {
  private interface Story {
    void tell() throws Exception;
  }

  private static final PartitionKey ANNA = new PartitionKey("anna");
  private final Orders orders;
  private final ReactiveOrders reactive;
  private final CosmosTemplate template;

  private Spring(AnnotationConfigApplicationContext context) {
    orders = context.getBean(Orders.class);
    reactive = context.getBean(ReactiveOrders.class);
    template = context.getBean(CosmosTemplate.class);
  }

  public static void main(String[] arguments) {
    try (AnnotationConfigApplicationContext context =
        new AnnotationConfigApplicationContext(Account.class)) {
      new Spring(context).run();
    }
    System.exit(0);
  }

  private void run() {
    tell("container", this::container);
    tell("save and find", this::saveAndFind);
    tell("etags", this::etags);
    tell("auditing", this::auditing);
    tell("unique keys", this::uniqueKeys);
    tell("patch", this::patch);
    tell("derived queries", this::derivedQueries);
    tell("pages and sort", this::pages);
    tell("slices", this::slices);
    tell("queries in words", this::queries);
    tell("count and exists", this::counts);
    tell("reactive", this::reactive);
    tell("delete", this::delete);
  }

  private void container() {
    var found = template.getContainerProperties("orders");
    expect(3600, found.getDefaultTimeToLiveInSeconds());
    expect("/customer", found.getPartitionKeyDefinition().getPaths().get(0));
    expect("/notes/?", found.getIndexingPolicy().getExcludedPaths().get(0).getPath());
    expect("/number", found.getUniqueKeyPolicy().getUniqueKeys().iterator().next().getPaths().get(0));
  }

  private void saveAndFind() {
    orders.saveAll(List.of(
        new Order("1", "anna", 1, 10, "red", "big"), new Order("2", "anna", 2, 20, "blue"),
        new Order("3", "bert", 3, 30, "red"), new Order("4", "carl", 4, 40),
        new Order("5", "Anna", 5, 50, "big")));
    expect(2, orders.findById("2", ANNA).orElseThrow().number);
    expect(3, orders.findById("3").orElseThrow().number); // over all ranges
    expect(false, orders.findById("none", ANNA).isPresent());
    expect(List.of(1, 3), numbers(orders.findAllById(List.of("1", "3"))));
    expect(List.of(1, 2), numbers(orders.findAll(ANNA)));
    expect(List.of(1, 2, 3, 4, 5), numbers(orders.findAll()));
  }

  private void etags() {
    Order first = orders.findById("1", ANNA).orElseThrow();
    Order second = orders.findById("1", ANNA).orElseThrow();
    first.total = 11;
    String etag = orders.save(first)._etag;
    expect(false, etag.equals(second._etag));
    fails(CosmosPreconditionFailedException.class, () -> orders.save(second));
  }

  private void auditing() {
    Order found = orders.findById("1", ANNA).orElseThrow();
    expect("anna", found.createdBy);
    expect(true, found.changed != null);
  }

  private void uniqueKeys() {
    fails(CosmosConflictException.class, () -> orders.save(new Order("6", "anna", 1, 1)));
  }

  private void patch() {
    CosmosPatchOperations change = CosmosPatchOperations.create().increment("/total", 2.0);
    expect(13.0, orders.save("1", ANNA, Order.class, change).total);
  }

  private void derivedQueries() {
    expect(List.of(2), numbers(orders.findByCustomerAndTotalGreaterThan("anna", 15)));
    expect(List.of(1, 4), numbers(orders.findByNumberIn(List.of(1, 4, 9))));
    expect(List.of(4, 3, 2), inOrder(orders.findByTotalBetweenOrderByNumberDesc(20, 40)));
    expect(List.of(3, 4), numbers(orders.findByCustomerContaining("r")));
    expect(List.of(1, 2, 5), numbers(orders.findByCustomerStartsWithIgnoreCase("ANN")));
    expect(List.of(5, 4), inOrder(orders.findTop2ByOrderByTotalDesc()));
  }

  private void pages() {
    List<Integer> found = new ArrayList<>();
    Pageable next = new CosmosPageRequest(0, 2, null, Sort.by("number").descending());
    Page<Order> page;
    do {
      page = orders.findByTotalGreaterThan(0, next);
      expect(5L, page.getTotalElements());
      expect(3, page.getTotalPages());
      found.addAll(inOrder(page));
      next = page.nextPageable();
    } while (page.hasNext());
    expect(List.of(5, 4, 3, 2, 1), found);
    expect(List.of(3, 4), inOrder(orders.findAll(PageRequest.of(1, 2, Sort.by("number")))));
    expect(List.of(5, 4, 3, 2, 1), inOrder(orders.findAll(Sort.by("total").descending())));
  }

  private void slices() {
    List<Integer> found = new ArrayList<>();
    Pageable next = new CosmosPageRequest(0, 2, null);
    Slice<Order> slice;
    do {
      slice = orders.findByTotalLessThan(45, next);
      found.addAll(inOrder(slice));
      next = slice.hasNext() ? slice.nextPageable() : null;
    } while (next != null);
    found.sort(null);
    expect(List.of(1, 2, 3, 4), found);
  }

  private void queries() {
    expect(List.of(2, 3), numbers(orders.expensive(15, List.of("anna", "bert"))));
    expect(List.of(33.0), orders.sums("anna"));
  }

  private void counts() {
    expect(5L, orders.count());
    expect(2L, orders.countByCustomer("anna"));
    expect(true, orders.existsByNumber(3));
    expect(false, orders.existsByNumber(9));
    expect(true, orders.existsById("4"));
  }

  private void reactive() {
    expect(List.of(1, 2), numbers(reactive.findByCustomer("anna").collectList().block()));
    expect("dora", reactive.save(new Order("7", "dora", 7, 70)).block().customer);
    expect(6L, reactive.count().block());
    expect(7, reactive.findById("7", new PartitionKey("dora")).block().number);
    reactive.deleteById("7", new PartitionKey("dora")).block();
    expect(false, reactive.existsById("7").block());
  }

  private void delete() {
    orders.deleteById("4", new PartitionKey("carl"));
    fails(CosmosAccessException.class, () -> orders.deleteById("4", new PartitionKey("carl")));
    orders.deleteByCustomer("anna");
    orders.delete(orders.findById("3").orElseThrow());
    expect(List.of(5), numbers(orders.findAll()));
    orders.deleteAll();
    expect(0L, orders.count());
    template.deleteContainer("orders");
  }

  private static List<Integer> inOrder(Iterable<Order> found) {
    return StreamSupport.stream(found.spliterator(), false).map(x -> x.number).toList();
  }

  private static List<Integer> numbers(Iterable<Order> found) {
    return inOrder(found).stream().sorted().toList();
  }

  private static void expect(Object wanted, Object found) {
    if (!Objects.equals(wanted, found)) {
      throw new AssertionError("expected " + wanted + ", found " + found);
    }
  }

  private static void fails(Class<? extends Exception> wanted, Runnable attempt) {
    try {
      attempt.run();
    } catch (RuntimeException thrown) {
      if (wanted.isInstance(thrown)) {
        return;
      }
      throw thrown;
    }
    throw new AssertionError("expected " + wanted.getSimpleName() + ", and it worked");
  }

  private static void tell(String operation, Story story) {
    String result = "works";
    String reason = "";
    try {
      story.tell();
    } catch (Exception | AssertionError thrown) {
      result = "failed";
      reason = thrown + " " + Arrays.stream(thrown.getStackTrace())
          .filter(x -> x.getClassName().endsWith("Spring")).findFirst().orElse(null);
      reason = reason.substring(0, Math.min(reason.length(), 1500));
    }
    try {
      System.out.println(new ObjectMapper().writeValueAsString(
          Map.of("operation", operation, "result", result, "reason", reason)));
    } catch (java.io.IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
