package strangers;

import com.azure.spring.data.cosmos.repository.CosmosRepository;
import com.azure.spring.data.cosmos.repository.Query;
import java.util.List;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.repository.query.Param;

public interface Orders extends CosmosRepository<Order, String> {
  List<Order> findByCustomerAndTotalGreaterThan(String customer, double total);

  List<Order> findByNumberIn(List<Integer> numbers);

  List<Order> findByTotalBetweenOrderByNumberDesc(double least, double most);

  List<Order> findByCustomerContaining(String part);

  List<Order> findByCustomerStartsWithIgnoreCase(String start);

  List<Order> findTop2ByOrderByTotalDesc();

  Page<Order> findByTotalGreaterThan(double total, Pageable pageable);

  Slice<Order> findByTotalLessThan(double total, Pageable pageable);

  boolean existsByNumber(int number);

  long countByCustomer(String customer);

  void deleteByCustomer(String customer);

  @Query("SELECT * FROM c WHERE c.total > @least AND ARRAY_CONTAINS(@customers, c.customer)")
  List<Order> expensive(@Param("least") double least, @Param("customers") List<String> customers);

  @Query("SELECT VALUE SUM(c.total) FROM c WHERE c.customer = @customer")
  List<Double> sums(@Param("customer") String customer);
}
