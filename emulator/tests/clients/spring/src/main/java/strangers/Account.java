package strangers;

import com.azure.cosmos.CosmosClientBuilder;
import com.azure.spring.data.cosmos.config.AbstractCosmosConfiguration;
import com.azure.spring.data.cosmos.repository.config.EnableCosmosRepositories;
import com.azure.spring.data.cosmos.repository.config.EnableReactiveCosmosRepositories;
import com.azure.spring.data.cosmos.core.mapping.EnableCosmosAuditing;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.domain.AuditorAware;

import java.util.Optional;

/** How to reach the endpoint: COSMOS_ENDPOINT and COSMOS_KEY of the environment. */
@Configuration
@EnableCosmosRepositories
@EnableReactiveCosmosRepositories
@EnableCosmosAuditing
public class Account extends AbstractCosmosConfiguration {
  @Bean
  public CosmosClientBuilder clientBuilder() {
    return new CosmosClientBuilder()
        .endpoint(System.getenv("COSMOS_ENDPOINT"))
        .key(System.getenv("COSMOS_KEY"))
        .gatewayMode();
  }

  @Bean
  public AuditorAware<String> auditor() {
    return () -> Optional.of("anna");
  }

  @Override
  protected String getDatabaseName() {
    return "spring";
  }
}
