import { z } from "zod";
import { HostError } from "../../errors.ts";
import type {
  ContainerDetail,
  ContainerSettings,
  ContainerState,
  ContainerSummary,
  CreateBody,
  Engine,
} from "./engine.ts";
import { inPath, labelled, parsed, TextMap } from "./parse.ts";
import type { Transport } from "./transport.ts";

type Containers = Pick<
  Engine,
  | "listContainers"
  | "inspectContainer"
  | "createContainer"
  | "startContainer"
  | "stopContainer"
  | "killContainer"
  | "removeContainer"
  | "renameContainer"
  | "updateContainer"
>;

const CHANGE_MS = 60_000;

/** The Engine API's container calls. */
export function containers(transport: Transport): Containers {
  const path = (id: string, action = ""): string => `/containers/${inPath(id)}${action}`;
  const change = (
    what: string,
    to: string,
    signal: AbortSignal,
    more: {
      readonly query?: Readonly<Record<string, string>>;
      readonly body?: unknown;
      readonly deadlineMs?: number;
    } = {},
  ) => transport.send({ what, method: "POST", path: to, deadlineMs: CHANGE_MS, ...more }, signal);
  return {
    async listContainers(labels, signal) {
      const what = "cannot list containers";
      const query = { all: "1", ...labelled(labels) };
      const { body } = await transport.send({ what, method: "GET", path: "/containers/json", query }, signal);
      return parsed(z.array(Row), body, "the engine's list of containers").map(summary);
    },
    async inspectContainer(id, signal) {
      const found = await inspect(transport, id, signal);
      return found === undefined ? undefined : detail(found);
    },
    async createContainer(name, body, signal) {
      const call = { what: `cannot create container ${name}`, method: "POST", path: "/containers/create" } as const;
      const more = { query: { name }, body, secrets: secretsOf(body), deadlineMs: CHANGE_MS };
      const answer = await transport.send({ ...call, ...more }, signal);
      const { Id, Warnings } = parsed(Created, answer.body, "the engine's response");
      return { id: Id, warnings: Warnings ?? [] };
    },
    async startContainer(id, signal) {
      await change(`cannot start container ${id}`, path(id, "/start"), signal, { deadlineMs: 2 * CHANGE_MS });
    },
    async stopContainer(id, graceSeconds, signal) {
      const query = { t: String(graceSeconds) };
      const deadlineMs = graceSeconds * 1000 + CHANGE_MS;
      await change(`cannot stop container ${id}`, path(id, "/stop"), signal, { query, deadlineMs });
    },
    async killContainer(id, signalName, signal) {
      const query = { signal: signalName };
      await change(`cannot send ${signalName} to container ${id}`, path(id, "/kill"), signal, { query });
    },
    async removeContainer(id, { force }, signal) {
      const what = `cannot remove container ${id}`;
      // Removes the anonymous volumes of the image, too.
      const query = { force: String(force), v: "true" };
      const call = { what, method: "DELETE", path: path(id), query, accepts: [404], deadlineMs: CHANGE_MS } as const;
      await transport.send(call, signal);
    },
    async renameContainer(id, name, signal) {
      await change(`cannot rename container ${id}`, path(id, "/rename"), signal, { query: { name } });
    },
    async updateContainer(id, body, signal) {
      await change(`cannot update container ${id}`, path(id, "/update"), signal, { body });
    },
  };
}

/** Returns the engine's data of one container; undefined if it does not exist. */
async function inspect(transport: Transport, id: string, signal: AbortSignal): Promise<Inspected | undefined> {
  const what = `cannot inspect container ${id}`;
  const call = { what, method: "GET", path: `/containers/${inPath(id)}/json`, accepts: [404] } as const;
  const { status, body } = await transport.send(call, signal);
  return status === 404 ? undefined : parsed(Inspected, body, `what the engine knows of container ${id}`);
}

/** Like `inspect`, but throws if the container does not exist. */
export async function inspectExisting(transport: Transport, id: string, signal: AbortSignal): Promise<Inspected> {
  const found = await inspect(transport, id, signal);
  if (found !== undefined) return found;
  throw new HostError("engine-refused", `container ${id} does not exist`, { details: { status: 404 } });
}

const Created = z.object({ Id: z.string(), Warnings: z.array(z.string()).nullish() });

const Endpoint = z.object({ IPAddress: z.string().nullish(), Aliases: z.array(z.string()).nullish() });
const Networks = z.object({ Networks: z.record(z.string(), Endpoint.nullable()).nullish() });

const Row = z.object({
  Id: z.string(),
  Names: z.array(z.string()).nullish(),
  ImageID: z.string().default(""),
  Image: z.string().default(""),
  Labels: TextMap,
  State: z.string(),
  Status: z.string().default(""),
  Created: z.number().default(0),
  NetworkSettings: Networks.nullish(),
});

const Inspected = z.object({
  Id: z.string(),
  Name: z.string(),
  Created: z.string(),
  Image: z.string().default(""),
  RestartCount: z.number().default(0),
  State: z.object({
    Status: z.string(),
    Running: z.boolean().default(false),
    Pid: z.number().default(0),
    ExitCode: z.number().default(0),
    StartedAt: z.string().default(""),
    FinishedAt: z.string().default(""),
    OOMKilled: z.boolean().default(false),
    Error: z.string().default(""),
    Health: z.object({ Status: z.string().default("") }).nullish(),
  }),
  Config: z.object({ Image: z.string().default(""), Labels: TextMap, Tty: z.boolean().default(false) }),
  HostConfig: z
    .looseObject({
      CgroupParent: z.string().default(""),
      RestartPolicy: z.object({ Name: z.string().default("") }).nullish(),
    })
    .nullish(),
  NetworkSettings: Networks.nullish(),
});
type Inspected = z.infer<typeof Inspected>;

/** Parses one row of the list. Health and exit code are only in its text: `Up 2 minutes (healthy)` or `Exited (137) 3 days ago`. */
export function summary(row: z.infer<typeof Row>): ContainerSummary {
  const state = stateOf(row.State);
  const exited = /^Exited \((\d+)\)/.exec(row.Status)?.[1];
  return {
    id: row.Id,
    name: plainName(row.Names?.[0] ?? ""),
    imageId: row.ImageID,
    image: row.Image,
    labels: row.Labels,
    state,
    health: state === "running" ? healthOf(/\((healthy|unhealthy)\)$/.exec(row.Status)?.[1]) : undefined,
    createdAt: row.Created,
    exitCode: hasEnded(state) && exited !== undefined ? Number(exited) : undefined,
    addresses: addressesOf(row.NetworkSettings),
  };
}

function detail(found: Inspected): ContainerDetail {
  const { State: said } = found;
  const state = stateOf(said.Status);
  return {
    id: found.Id,
    name: plainName(found.Name),
    imageId: found.Image,
    image: found.Config.Image,
    labels: found.Config.Labels,
    state,
    health: state === "running" ? healthOf(said.Health?.Status) : undefined,
    createdAt: Math.floor(timeOf(found.Created) / 1000),
    exitCode: hasEnded(state) ? said.ExitCode : undefined,
    addresses: addressesOf(found.NetworkSettings),
    pid: state === "running" || state === "paused" ? said.Pid : 0,
    startedAt: timeOf(said.StartedAt),
    finishedAt: timeOf(said.FinishedAt),
    restartCount: found.RestartCount,
    isOomKilled: said.OOMKilled,
    error: said.Error,
    cgroupParent: found.HostConfig?.CgroupParent ?? "",
    settings: settingsOf(found),
  };
}

function settingsOf({ HostConfig, NetworkSettings }: Inspected): ContainerSettings {
  const { RestartPolicy, ...rest } = HostConfig ?? {};
  const resources = Object.entries(rest).flatMap(([name, value]) =>
    typeof value === "number" || typeof value === "string" ? [[name, value] as const] : [],
  );
  const networks = Object.entries(NetworkSettings?.Networks ?? {}).map(([name, endpoint]) => {
    const { IPAddress, Aliases } = endpoint ?? {};
    return [name, { address: IPAddress ?? "", aliases: Aliases ?? [] }] as const;
  });
  const name = RestartPolicy?.Name ?? "";
  return {
    restartPolicy: name === "" ? "no" : name,
    resources: Object.fromEntries(resources),
    networks: Object.fromEntries(networks),
  };
}

/** Docker's state names, and Podman's more specific ones. */
const STATES: ReadonlyMap<string, ContainerState> = new Map(
  Object.entries<ContainerState>({
    created: "created",
    configured: "created",
    initialized: "created",
    running: "running",
    stopping: "running",
    paused: "paused",
    restarting: "restarting",
    removing: "removing",
    exited: "exited",
    stopped: "exited",
  }),
);

const stateOf = (said: string): ContainerState => STATES.get(said) ?? "dead";
const hasEnded = (state: ContainerState): boolean => state === "exited" || state === "dead";
const plainName = (name: string): string => name.replace(/^\//, "");

/** Returns the engine's health state of a container; undefined if it has none. */
export function healthOf(said: string | undefined): ContainerSummary["health"] {
  return said === "healthy" || said === "unhealthy" ? said : undefined;
}

function addressesOf(settings: z.infer<typeof Networks> | null | undefined): Readonly<Record<string, string>> {
  const known = Object.entries(settings?.Networks ?? {});
  return Object.fromEntries(known.flatMap(([name, one]) => (one?.IPAddress ? [[name, one.IPAddress]] : [])));
}

/** Returns Unix milliseconds; 0 for the year 1, which the engine uses for never. */
function timeOf(text: string): number {
  const at = Date.parse(text);
  return Number.isNaN(at) || at < 0 ? 0 : at;
}

/** Returns the values of a container's variables, which the engine may repeat in errors. */
function secretsOf(body: CreateBody): readonly string[] {
  const variables = Array.isArray(body["Env"]) ? body["Env"].map(String) : [];
  return variables.flatMap((variable) => [variable, variable.slice(variable.indexOf("=") + 1)]);
}
