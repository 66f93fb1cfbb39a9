import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { isIP } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";
import type { DatabaseSync } from "node:sqlite";
import type { Logger } from "pino";
import { toError } from "../../../errors.ts";
import { withinTime } from "../../../lib/async/within-time.ts";
import { countOpenTasks } from "../../data-store/task-table.ts";
import type { LocalProvider } from "../../local-api/provider.ts";
import type { MetricsSettings } from "../../settings.ts";
import { exposition } from "./exposition.ts";
import { familiesOf, type ScrapeReading } from "./families.ts";
import type { Dispatcher } from "../../triggers/execution/dispatch.ts";

export interface MetricsEndpointOptions {
  readonly listen: MetricsSettings;
  readonly provider: Pick<LocalProvider, "status" | "why" | "connectors" | "services" | "gateways" | "containers">;
  readonly dispatcher: Pick<Dispatcher, "tally">;
  readonly sql: DatabaseSync;
  readonly log: Logger;
}

export interface MetricsEndpoint {
  /** Listening address; undefined if it is unavailable. */
  readonly port: number | undefined;
  close(): void;
}

const MAX_CONNECTIONS = 8;
const TIMEOUT_MS = 10_000;
const READ_MS = 3000;
/** Interval of the timer that measures the event loop's delay while the endpoint is enabled. */
const DELAY_RESOLUTION_MS = 100;

/** Serves `GET /metrics` to Prometheus. An unavailable address is logged and affects nothing else. */
export async function serveMetrics(options: MetricsEndpointOptions): Promise<MetricsEndpoint> {
  const { listen, log } = options;
  const delays = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });
  delays.enable();
  const eventLoop = (): ScrapeReading["eventLoop"] => {
    // The histogram measures whole intervals; without one there is no value.
    const late = (nanoseconds: number): number =>
      delays.count === 0 ? 0 : Math.max(0, nanoseconds / 1e9 - DELAY_RESOLUTION_MS / 1000);
    const found = {
      meanSeconds: late(delays.mean),
      p99Seconds: late(delays.percentile(99)),
      maxSeconds: late(delays.max),
    };
    delays.reset();
    return found;
  };
  let running: Promise<string> | undefined;
  let contentType = "text/plain";
  const scrape = (): Promise<string> => {
    // Concurrent scrapes share one answer.
    running ??= read(options, eventLoop())
      .then(async (reading) => {
        const made = await exposition(familiesOf(reading));
        contentType = made.contentType;
        return made.text;
      })
      .finally(() => {
        running = undefined;
      });
    return running;
  };
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const refused = refusalOf(request);
    if (refused !== undefined) return send(response, refused, "text/plain; charset=utf-8", "");
    try {
      const text = await scrape();
      send(response, 200, contentType, text);
    } catch (error) {
      log.warn({ err: toError(error) }, "metrics could not be read");
      send(response, 500, "text/plain; charset=utf-8", "");
    }
  };
  const server = createServer(
    { headersTimeout: TIMEOUT_MS, requestTimeout: TIMEOUT_MS, keepAliveTimeout: TIMEOUT_MS, maxHeaderSize: 8192 },
    (request, response) => void answer(request, response),
  );
  server.maxConnections = MAX_CONNECTIONS;
  const port = await listening(server, listen, log);
  return {
    port,
    close() {
      delays.disable();
      server.close();
      server.closeAllConnections();
    },
  };
}

async function read(
  { provider, dispatcher, sql }: MetricsEndpointOptions,
  eventLoop: ScrapeReading["eventLoop"],
): Promise<ScrapeReading> {
  const signal = withinTime(new AbortController().signal, READ_MS);
  const orNothing = <T>(asked: Promise<T>): Promise<T | undefined> => asked.catch(() => undefined);
  const [connectors, services, gateways] = await Promise.all([
    orNothing(provider.connectors(signal)),
    orNothing(provider.services(signal)),
    orNothing(provider.gateways(signal)),
  ]);
  return {
    status: provider.status(),
    why: provider.why(),
    connectors,
    services,
    gateways,
    containers: provider.containers(),
    triggers: dispatcher.tally(),
    transfers: countOpenTasks(sql),
    eventLoop,
  };
}

/** Returns the status of a refused request. A web page whose name resolves to this address is no valid caller. */
function refusalOf({ method, url, headers }: IncomingMessage): number | undefined {
  const host = URL.parse(`http://${headers.host ?? "localhost"}`)?.hostname.replace(/^\[|\]$/g, "");
  if (host === undefined || (isIP(host) === 0 && host !== "localhost")) return 421;
  if (url?.split("?")[0] !== "/metrics") return 404;
  return method === "GET" || method === "HEAD" ? undefined : 405;
}

function send(response: ServerResponse, status: number, contentType: string, text: string): void {
  response.writeHead(status, { "content-type": contentType, "content-length": Buffer.byteLength(text) });
  response.end(text);
}

function listening(server: Server, { host, port }: MetricsSettings, log: Logger): Promise<number | undefined> {
  return new Promise((resolve) => {
    server.on("error", (error) => {
      log.error({ code: "metrics-unavailable", err: error, host, port }, "metrics are not served");
      resolve(undefined);
    });
    server.listen(port, host, () => {
      const address = server.address();
      const found = typeof address === "object" && address !== null ? address.port : port;
      log.info({ host, port: found }, "metrics are served");
      resolve(found);
    });
  });
}
