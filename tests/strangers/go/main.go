// Command scaler prints what KEDA's scaler for Cosmos DB makes of a fleet's leases, as one line of
// JSON. It reads the metadata of a trigger, and the connection string, as JSON.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

func main() {
	var asked map[string]string
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	scaler, err := scalers.NewAzureCosmosDBScaler(&scalersconfig.ScalerConfig{
		TriggerMetadata: asked,
		AuthParams:      map[string]string{"connection": asked["connection"]},
	})
	if err != nil {
		panic(err)
	}
	metrics, active, err := scaler.GetMetricsAndActivity(context.Background(), "lag")
	if err != nil {
		panic(err)
	}
	said := map[string]any{"active": active, "lag": metrics[0].Value.Value()}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		panic(err)
	}
}
