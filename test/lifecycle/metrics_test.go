package lifecycle

import (
	"context"
	"io"
	"net/http"
)

// metrics reads the metrics of the first manager, for Eventually.
func (c *cluster) metrics(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Managers()[0].MetricsAddress+"/metrics", nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
}
