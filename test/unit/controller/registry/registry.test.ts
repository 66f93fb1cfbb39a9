import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { httpRegistry } from "../../../../src/controller/registry/registry.ts";

async function server(answer: RequestListener) {
  const asked: string[] = [];
  const http = createServer((request, response) => {
    asked.push(`${request.method ?? ""} ${request.url ?? ""}`);
    answer(request, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    http.closeAllConnections();
    http.close();
  });
  const host = `127.0.0.1:${(http.address() as AddressInfo).port}`;
  return { host, asked };
}

const registryAt = (host: string) =>
  httpRegistry({ url: `http://${host}`, host, token: () => Promise.resolve("a-token") });

test("a registry that names another host for what comes next is asked itself", async () => {
  const elsewhere = await server((_, response) => response.end("{}"));
  const hostile = await server((request, response) => {
    if (request.url?.startsWith("/v2/_catalog") === true) {
      response.setHeader("link", `<http://x//${elsewhere.host}/v2/_catalog?n=1>; rel="next"`);
      response.end(JSON.stringify({ repositories: null }));
      return;
    }
    response.statusCode = 404;
    response.end();
  });
  expect(await registryAt(hostile.host).repositories()).toEqual([]);
  expect(elsewhere.asked).toEqual([]);
  expect(hostile.asked).toEqual(["GET /v2/_catalog?n=1000", `GET //${elsewhere.host}/v2/_catalog?n=1`]);
});

test.each([200, 500])("an answer of %i that breaks off is a registry that cannot be reached", async (status) => {
  const { host } = await server((_, response) => {
    response.writeHead(status, { "content-length": "100" });
    response.write("{", () => response.destroy());
  });
  await expect(registryAt(host).repositories()).rejects.toMatchObject({ code: "registry-unreachable" });
});
