// Receives changes from `changefeed run --observer=http`, and prints each that it has handled.
//
//	go run receiver.go PORT SECRET_FILE
//
// What handle refuses is named in the answer: it comes again, and goes to the dead letters in
// the end. Changes of one key come in order, and may come twice: the id tells.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	mostBytes   = 8 << 20
	mostSeconds = 300 // that a post may be old
)

type event struct {
	ID   string          `json:"id"`
	Key  string          `json:"partitionkey"`
	Data json.RawMessage `json:"data"`
}

type failure struct {
	ID string `json:"itemIdentifier"`
}

type receiver struct {
	secretFile string
	mutex      sync.Mutex      // ranges, and calls at once, post side by side
	seen       map[string]bool // keep this with what you write, in one transaction
}

func (r *receiver) handle(e event) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.seen[e.ID] {
		return nil
	}
	var booking struct{ Account *string }
	if err := json.Unmarshal(e.Data, &booking); err != nil {
		return err
	}
	if booking.Account == nil {
		return errors.New("there is no account")
	}
	fmt.Printf(`{"id":%q,"key":%q,"data":%s}`+"\n", e.ID, e.Key, e.Data)
	r.seen[e.ID] = true
	return nil
}

func (r *receiver) isSigned(header http.Header, body []byte) (bool, error) {
	secret, err := os.ReadFile(r.secretFile)
	if err != nil {
		return false, err
	}
	id, sent := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || math.Abs(time.Since(time.Unix(seconds, 0)).Seconds()) > mostSeconds {
		return false, nil
	}
	mac := hmac.New(sha256.New, []byte(strings.TrimSpace(string(secret))))
	fmt.Fprintf(mac, "%s.%s.%s", id, sent, body)
	expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(header.Get("webhook-signature")), []byte(expected)), nil
}

func (r *receiver) handleAll(events []event) []failure {
	failed := []failure{}
	held := map[string]bool{} // keys that wait for a change that has failed
	for _, e := range events {
		if held[e.Key] {
			continue
		}
		if err := r.handle(e); err != nil {
			log.Printf("%s: %v", e.ID, err)
			failed = append(failed, failure{e.ID})
			held[e.Key] = true
		}
	}
	return failed
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, mostBytes))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	switch signed, err := r.isSigned(request.Header, body); {
	case err != nil:
		http.Error(w, "the secret cannot be read", http.StatusInternalServerError)
		return
	case !signed:
		http.Error(w, "not signed by us", http.StatusUnauthorized)
		return
	}
	var events []event
	if err := json.Unmarshal(body, &events); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"batchItemFailures": r.handleAll(events)})
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Print("ready")
	log.Fatal(http.Serve(listener, &receiver{secretFile: os.Args[2], seen: map[string]bool{}}))
}
