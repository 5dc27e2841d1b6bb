package strangers;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/** Tries operations and prints a line of JSON for each: what it was, how it ended, and why. */
final class Report {
  /** An operation, which fails by throwing. */
  interface Attempt {
    void run() throws Exception;
  }

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String REFUSAL = "is not supported by this emulator";

  private final String client;

  Report(String client) {
    this.client = client;
  }

  void of(String operation, Attempt attempt) {
    String result = "works";
    String reason = "";
    try {
      attempt.run();
    } catch (Exception | AssertionError thrown) {
      reason = String.valueOf(thrown.getMessage());
      result = reason.contains(REFUSAL) ? "refused" : "failed";
      if (result.equals("failed")) {
        reason = thrown.getClass().getSimpleName() + ": " + reason;
      }
    }
    Map<String, String> line = new LinkedHashMap<>();
    line.put("client", client);
    line.put("operation", operation);
    line.put("result", result);
    line.put("reason", reason.substring(0, Math.min(reason.length(), 1500)));
    print(line);
  }

  static void print(Object line) {
    try {
      System.out.println(JSON.writeValueAsString(line));
    } catch (java.io.IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  static void expect(Object wanted, Object found) {
    if (!Objects.equals(String.valueOf(wanted), String.valueOf(found))) {
      throw new AssertionError("expected " + wanted + ", found " + found);
    }
  }

  static void expectStatus(int status, Attempt attempt) throws Exception {
    try {
      attempt.run();
    } catch (com.azure.cosmos.CosmosException refused) {
      expect(status, refused.getStatusCode());
      return;
    }
    throw new AssertionError("expected the status " + status + ", and it worked");
  }
}
