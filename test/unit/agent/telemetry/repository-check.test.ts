import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { once } from "node:events";
import type { AddressInfo, Server } from "node:net";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { checkRepository } from "../../../../src/agent/telemetry/repository-check.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const never = new AbortController().signal;

async function listening(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

test.each([
  [200, "ok"],
  [404, "ok"],
  [301, "ok"],
  [401, "client-unknown"],
  [403, "client-unknown"],
  [503, "unavailable"],
])("status %i is %s", async (status, answer) => {
  const port = await listening(createServer((_, response) => response.writeHead(status).end()));
  expect(await checkRepository(new URL(`http://127.0.0.1:${port}/`), never)).toBe(answer);
});

test("a closed port and a name that cannot be", async () => {
  const server = createServer();
  const port = await listening(server);
  server.close();
  await once(server, "close");
  expect(await checkRepository(new URL(`http://127.0.0.1:${port}/`), never)).toBe("port-not-reachable");
  // A label of 64 characters cannot be asked for, so no question leaves the machine.
  const name = `${"x".repeat(64)}.invalid`;
  expect(await checkRepository(new URL(`http://${name}/`), never)).toBe("name-not-resolved");
});

test("a certificate of an unknown issuer", async () => {
  const directory = tempDir();
  const [key, cert] = [join(directory, "key"), join(directory, "cert")];
  const options = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"];
  execFileSync("openssl", [...options, "-keyout", key, "-out", cert], { stdio: "ignore" });
  const port = await listening(createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }));
  expect(await checkRepository(new URL(`https://127.0.0.1:${port}/`), never)).toBe("certificate-refused");
});

test("an abort ends the wait", async () => {
  const server = createServer(() => {});
  const port = await listening(server);
  const stop = new AbortController();
  const answer = checkRepository(new URL(`http://127.0.0.1:${port}/`), stop.signal);
  await once(server, "request");
  stop.abort(new Error("stopped"));
  await expect(answer).rejects.toThrow("stopped");
});
