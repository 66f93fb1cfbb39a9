import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";
import { createServer } from "node:net";
import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { serveMetrics, type MetricsEndpoint } from "../../../../../src/agent/telemetry/metrics/endpoint.ts";
import { dataStoreMigration } from "../../../../../src/agent/data-store/task-table.ts";
import { FakeLocalProvider } from "../../../../support/fake-local-provider.ts";
import { readPrometheusText } from "../../../../support/prometheus-text.ts";

async function serve(port = 0): Promise<MetricsEndpoint & { readonly provider: FakeLocalProvider }> {
  const provider = new FakeLocalProvider();
  const sql = new DatabaseSync(":memory:");
  sql.exec(dataStoreMigration);
  const endpoint = await serveMetrics({
    listen: { host: "127.0.0.1", port },
    provider,
    dispatcher: { tally: () => ({ running: 0, succeeded: 0, failed: 0 }) },
    sql,
    log: pino({ level: "silent" }),
  });
  onTestFinished(() => endpoint.close());
  return { ...endpoint, provider };
}

async function ask(port: number | undefined, path: string, host = "127.0.0.1", method = "GET") {
  const outgoing = request({ host: "127.0.0.1", port, path, method, headers: { host }, agent: false });
  outgoing.end();
  const [message] = (await once(outgoing, "response")) as [IncomingMessage];
  let text = "";
  for await (const chunk of message.setEncoding("utf8")) text += String(chunk);
  return { status: message.statusCode, type: message.headers["content-type"], text };
}

test("serves metrics, and nothing else", async () => {
  const { port } = await serve();
  const { status, type, text } = await ask(port, "/metrics");
  expect(status).toBe(200);
  expect(type).toMatch(/^text\/plain; version=0\.0\.4/);
  expect(readPrometheusText(text).get("holdfast_build_info")?.samples[0]?.value).toBe(1);
  expect((await ask(port, "/")).status).toBe(404);
  expect((await ask(port, "/metrics", "127.0.0.1", "POST")).status).toBe(405);
  expect((await ask(port, "/metrics", "attacker.example")).status).toBe(421);
});

test("continues after a failed read of the agent", async () => {
  const { port, provider } = await serve();
  provider.thrown = new Error("a bug");
  expect((await ask(port, "/metrics")).status).toBe(500);
  provider.thrown = undefined;
  expect((await ask(port, "/metrics")).status).toBe(200);
});

test("starts although another program has the port", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  onTestFinished(() => void other.close());
  const address = other.address();
  expect((await serve(typeof address === "object" ? address?.port : 0)).port).toBeUndefined();
});
