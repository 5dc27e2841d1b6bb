// What a script finds in its context: the collection, the request, the response, console.
// Operations wait in a queue: __asked hands them out, and __settle brings their results back.
(function (scope) {
  const { parse, stringify } = JSON;
  const now = Date.now;
  const evaluate = scope.eval;
  const AT_ONCE = 100;
  const MAX_LOG = 65536;
  let given, queue = [], callbacks = new Map(), asked = 0, failure = null, log = "", ends = 0;
  let request, response;

  function fail(error) {
    if (failure === null) failure = described(error);
  }

  function described(error) {
    if (!(error instanceof Error)) {
      return { message: typeof error === "string" ? error : String(stringify(error)), stack: "" };
    }
    return { message: `${error.name}: ${error.message}`, stack: String(error.stack) };
  }

  function ask(operation, options, callback) {
    if (typeof options === "function") [options, callback] = [{}, options];
    if (now() > ends) return false;
    queue.push({ ...operation, number: asked, options: options || {} });
    callbacks.set(asked++, callback);
    return true;
  }

  function bodyOf(document) {
    const body = stringify(document);
    if (body === undefined) throw new Error("A document is an object, not " + typeof document);
    return body;
  }

  const collection = {
    getSelfLink: () => given.selfLink,
    getAltLink: () => given.altLink,
    createDocument: (link, document, options, callback) =>
      ask({ kind: "create", link, body: bodyOf(document) }, options, callback),
    upsertDocument: (link, document, options, callback) =>
      ask({ kind: "upsert", link, body: bodyOf(document) }, options, callback),
    readDocument: (link, options, callback) => ask({ kind: "read", link }, options, callback),
    replaceDocument: (link, document, options, callback) =>
      ask({ kind: "replace", link, body: bodyOf(document) }, options, callback),
    deleteDocument: (link, options, callback) => ask({ kind: "delete", link }, options, callback),
    queryDocuments: (link, query, options, callback) =>
      ask({ kind: "query", link, query }, options, callback),
    readDocuments: (link, options, callback) =>
      ask({ kind: "query", link, query: "SELECT * FROM c" }, options, callback),
  };

  for (const name of ["chain", "filter", "map", "pluck", "flatten", "sortBy", "sortByDescending",
    "unwind", "value", "createAttachment", "readAttachment", "readAttachments",
    "queryAttachments", "replaceAttachment", "deleteAttachment"]) {
    collection[name] = () => {
      throw new Error(`${name} of a collection is not supported by this emulator: use queryDocuments`);
    };
  }

  function message(body) {
    const values = {};
    return {
      body,
      shown: {
        getBody: () => body === undefined ? undefined : parse(stringify(body)),
        setBody: (value) => { body = value; },
        getValue: (name) => values[name],
        setValue: (name, value) => { values[name] = value; },
        getOperationType: () => given.operation,
      },
      text: () => stringify(body),
    };
  }

  const context = {
    getCollection: () => collection,
    getRequest: () => shown(request, "request: it has one in triggers only"),
    getResponse: () => shown(response, "response: it has none before an operation"),
    abort: (error) => { throw error === undefined ? new Error("The script aborts") : error; },
  };

  function shown(found, what) {
    if (found === undefined) throw new Error("This script has no " + what);
    return found.shown;
  }

  scope.getContext = () => context;
  scope.__ = { ...collection, ...context };
  scope.console = { log: (...values) => { log = (log + values.map(line).join(" ")).slice(0, MAX_LOG); } };
  scope.ErrorCodes = Object.freeze({
    BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412,
    RequestEntityTooLarge: 413, RetryWith: 449, InternalServerError: 500,
  });

  function line(value) {
    return typeof value === "string" ? value : String(stringify(value));
  }

  // A body is one function, or several of which the first is called.
  function compiled(source) {
    try {
      return evaluate("(" + source.replace(/[\s;]+$/, "") + "\n)");
    } catch (error) {
      const first = /function\s+([\w$]+)/.exec(source);
      if (!(error instanceof SyntaxError) || first === null) throw error;
      evaluate(source);
      return evaluate(first[1]);
    }
  }

  scope.__compile = (source) => {
    try {
      scope.__main = compiled(source);
      if (typeof scope.__main === "function") return null;
      return "The body of a script is a function.";
    } catch (error) {
      return String(error);
    }
  };

  scope.__start = (text) => {
    given = parse(text);
    ends = now() + given.acceptMilliseconds;
    if ("request" in given) request = message(given.request);
    if (given.hasResponse) response = message(given.response);
    attempt(() => {
      const result = scope.__main(...given.parameters);
      if (result && typeof result.then === "function") result.then(undefined, fail);
    });
  };

  function attempt(act) {
    try {
      act();
    } catch (error) {
      fail(error);
    }
  }

  scope.__asked = () => stringify({
    operations: queue.splice(0, AT_ONCE),
    failure,
    request: request && request.text(),
    response: response && response.text(),
    log,
  });

  scope.__settle = (text) => {
    for (const { number, status, message, value, options } of parse(text)) {
      const callback = callbacks.get(number);
      callbacks.delete(number);
      const error = status === undefined ? undefined : Object.assign(
        new Error(message), { number: status, code: status, body: message });
      if (failure !== null) return;
      if (typeof callback === "function") attempt(() => callback(error, value, options));
      else if (error !== undefined) fail(error);
    }
  };

  // Functions of queries: what is undefined has no place in JSON, so it is told apart.
  scope.__functions = {};
  scope.__define = (text) => {
    const [name, source] = parse(text);
    try {
      scope.__functions[name] = compiled(source);
      return null;
    } catch (error) {
      return String(error);
    }
  };
  scope.__apply = (text) => {
    const [name, values, missing] = parse(text);
    for (const at of missing) values[at] = undefined;
    try {
      return stringify({ result: scope.__functions[name](...values) });
    } catch (error) {
      return stringify({ failure: described(error) });
    }
  };
})(globalThis);
