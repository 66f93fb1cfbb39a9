import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { getRequestListener } from "@hono/node-server";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { ADMIN_KEY, type ApiBench } from "../../../support/control-plane/api-bench.ts";
import { ExampleStage, UNPERFORMED, type Example } from "../../../support/control-plane/example-stage.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const GENERATOR = "node_modules/openapi-typescript-codegen/bin/index.js";
const COMPILER = "node_modules/typescript/bin/tsc";
const run = promisify(execFile);

/** A program over the client, as a person writes it; it fails to compile if the types lack what it uses. */
const TOUR = `
import { NodeConfigurationService, OpenAPI, PoliciesService, ServiceUsersService, type Policy } from "./client";

export async function tour(base: string, key: string, nodeId: string): Promise<readonly unknown[]> {
  OpenAPI.BASE = base;
  OpenAPI.HEADERS = { authorization: key };
  const requestBody: Policy = {
    name: "tour-readers",
    statements: [{ effect: "allow", actions: ["nodes::read"] }],
    resources: ["*"],
  };
  await PoliciesService.createPolicy({ requestBody });
  await ServiceUsersService.createServiceUser({ requestBody: { name: "tour", policies: [requestBody.name] } });
  const { clientId, clientSecret } = await ServiceUsersService.createServiceUserToken({ name: "tour" });
  const service = { name: "tour", protocol: "tcp" as const, host: "192.0.2.10", port: 5432, enabled: true };
  const { id } = await NodeConfigurationService.createNodeService({ nodeId, requestBody: service });
  OpenAPI.HEADERS = { authorization: \`holdfast-token \${clientId}:\${clientSecret}\` };
  const refused = await NodeConfigurationService.deleteNodeService({ nodeId, serviceId: id }).then(
    () => undefined,
    ({ status }: { readonly status: number }) => status,
  );
  return [await ServiceUsersService.getServiceUser({ name: "tour" }).catch(() => "hidden"), refused];
}
`;

const PROJECT = {
  compilerOptions: {
    strict: true,
    noEmit: true,
    target: "esnext",
    module: "esnext",
    moduleResolution: "bundler",
    lib: ["esnext", "dom"],
    types: [],
  },
  include: ["."],
};

type Operation = (options: object) => Promise<unknown>;
const isOperation = (value: unknown): value is Operation => typeof value === "function";

/** Serves the API of a bench. Returns its origin. */
async function serve({ app }: ApiBench): Promise<string> {
  const listener = getRequestListener((request) => app.fetch(request), { overrideGlobalObjects: false });
  const server = createServer((request, response) => void listener(request, response));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${z.object({ port: z.int() }).parse(server.address()).port}`;
}

/** Generates a client from the document that is served, with a program that uses it. Returns the directory. */
async function generate(url: string): Promise<string> {
  const directory = tempDir();
  const input = join(directory, "openapi.json");
  await writeFile(input, await (await fetch(`${url}/openapi.json`)).text());
  const options = ["--input", input, "--output", join(directory, "client"), "--client", "fetch", "--useOptions"];
  await run(process.execPath, [GENERATOR, ...options]);
  await writeFile(join(directory, "tour.ts"), TOUR);
  await writeFile(join(directory, "tsconfig.json"), JSON.stringify(PROJECT));
  return directory;
}

/** Returns the operations of a client by name; they are static methods of a class for each tag. */
function operationsOf(client: object): ReadonlyMap<string, Operation> {
  const classes = Object.entries(client).filter(([name]) => name.endsWith("Service"));
  return new Map(
    classes.flatMap(([, service]) => {
      const methods = Object.entries(Object.getOwnPropertyDescriptors(z.custom<object>().parse(service)));
      return methods.flatMap(([name, { value }]) => (isOperation(value) ? [[name, value] as const] : []));
    }),
  );
}

/** Returns the options of an operation, spelled as the generator spells them: `nodeID` is `nodeId`. */
function optionsOf(operation: Operation, { params, query, body }: Example): object {
  const plain = (name: string): string => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "");
  const given = new Map(Object.entries({ ...params, ...query }).map(([name, value]) => [plain(name), value]));
  const [, list = ""] = /^\w+\(\{([^}]*)\}/.exec(operation.toString()) ?? [];
  const names = list.split(",").map((name) => name.split("=")[0]?.trim() ?? "");
  const options = names.map((name): [string, unknown] => [
    name,
    ["requestBody", "formData"].includes(name) ? body : given.get(plain(name)),
  ]);
  return Object.fromEntries(options.filter(([, value]) => value !== undefined));
}

it("a client that another program generates compiles, and performs every operation", async () => {
  const stage = await ExampleStage.open();
  const { routes } = stage.bench;
  const url = await serve(stage.bench);
  const directory = await generate(url);
  await run(process.execPath, [resolve(COMPILER), "-p", directory]);

  const client: unknown = await import(/* @vite-ignore */ pathToFileURL(join(directory, "client/index.ts")).href);
  const settings = z.looseObject({ OpenAPI: z.custom<{ BASE: string; HEADERS: unknown }>() }).parse(client);
  settings.OpenAPI.BASE = url;
  const open = new Set(routes.filter(({ isOpen }) => isOpen).map(({ path }) => path));
  settings.OpenAPI.HEADERS = (call: { readonly url: string }) =>
    Promise.resolve(open.has(call.url) ? {} : { authorization: ADMIN_KEY });
  const operations = operationsOf(settings);
  expect([...operations.keys()].sort()).toEqual(routes.map(({ operationId }) => operationId).sort());

  const failed: unknown[] = [];
  for (const example of stage.examples()) {
    const { operationId } = example;
    const operation = operations.get(operationId);
    const route = routes.find((one) => one.operationId === operationId);
    if (operation === undefined || route === undefined) continue;
    const expected = UNPERFORMED.get(operationId) ?? 200;
    try {
      const answer = await operation(optionsOf(operation, stage.adapted(example)));
      stage.learn(example, answer);
      if (expected !== 200 || route.answers[200]?.schema?.safeParse(answer).success === false)
        failed.push([operationId, answer]);
    } catch (error) {
      const { status, body } = z.object({ status: z.int(), body: z.unknown() }).parse(error);
      if (status !== expected) failed.push([operationId, status, body]);
    }
  }
  expect(failed).toEqual([]);
});

it("a program with its types creates a service user, a policy and a service, and is refused what the policy lacks", async () => {
  const { bench } = await ExampleStage.open();
  const url = await serve(bench);
  const node = await bench.fleet.add({ name: "tour", config: {} });
  await bench.call("POST", `/v2/node/${node.uid}/config/services/upgrade`);
  const program: unknown = await import(/* @vite-ignore */ pathToFileURL(join(await generate(url), "tour.ts")).href);
  const { tour } = z.object({ tour: z.custom<(...values: string[]) => Promise<unknown>>() }).parse(program);
  expect(await tour(url, ADMIN_KEY, node.uid)).toEqual(["hidden", 403]);
});
