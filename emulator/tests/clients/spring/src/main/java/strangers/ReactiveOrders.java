package strangers;

import com.azure.spring.data.cosmos.repository.ReactiveCosmosRepository;
import reactor.core.publisher.Flux;

public interface ReactiveOrders extends ReactiveCosmosRepository<Order, String> {
  Flux<Order> findByCustomer(String customer);
}
