// A proxy that answers pages of change feeds and queries from memory, once an endpoint has given them.
//
// So the endpoint costs next to nothing while readers are compared. What is no page, and all of
// the container "leases", goes to the endpoint, whose URL is the one argument. The data must
// not change. POST /_gate holds pages back until DELETE /_gate.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
)

// What tells one page from another.
var asked = []string{
	"A-Im", "If-None-Match", "If-Modified-Since", "Accept-Encoding", "X-Ms-Max-Item-Count",
	"X-Ms-Documentdb-Partitionkeyrangeid", "X-Ms-Start-Epk", "X-Ms-End-Epk",
	"X-Ms-Read-Key-Type", "X-Ms-Cosmos-Changefeed-Wire-Format-Version", "X-Ms-Continuation",
	"X-Ms-Cosmos-Is-Query-Plan-Request",
}

type replay struct {
	endpoint *httputil.ReverseProxy
	pages    sync.Map
	gate     sync.RWMutex
}

func (r *replay) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	switch {
	case request.URL.Path == "/_gate" && request.Method == http.MethodPost:
		r.gate.Lock()
	case request.URL.Path == "/_gate":
		r.gate.Unlock()
	case isPage(request):
		r.page(to, request)
	default:
		r.endpoint.ServeHTTP(to, request)
	}
}

// The list of ranges is asked for with the same header.
func isPage(request *http.Request) bool {
	path := strings.TrimSuffix(request.URL.Path, "/")
	ofItems := strings.HasSuffix(path, "/docs") && !strings.HasSuffix(path, "/leases/docs")
	isQuery := request.Method == http.MethodPost &&
		strings.HasPrefix(request.Header.Get("Content-Type"), "application/query+json")
	return ofItems && (isQuery || request.Header.Get("A-Im") != "")
}

func (r *replay) page(to http.ResponseWriter, request *http.Request) {
	r.gate.RLock()
	defer r.gate.RUnlock()
	query, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	request.Body = io.NopCloser(bytes.NewReader(query))
	key := request.URL.Path + "\n" + string(query)
	for _, name := range asked {
		key += "\n" + request.Header.Get(name)
	}
	found, kept := r.pages.Load(key)
	if !kept {
		answer := httptest.NewRecorder()
		r.endpoint.ServeHTTP(answer, request)
		if answer.Code == http.StatusOK || answer.Code == http.StatusNotModified {
			r.pages.Store(key, answer)
		}
		found = answer
	}
	answer := found.(*httptest.ResponseRecorder)
	for name, values := range answer.Header() {
		to.Header()[name] = values
	}
	to.WriteHeader(answer.Code)
	_, _ = to.Write(answer.Body.Bytes())
}

func main() {
	endpoint, err := url.Parse(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(endpoint)
	proxy.Transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/\n", listener.Addr())
	log.Fatal(http.Serve(listener, &replay{endpoint: proxy}))
}
