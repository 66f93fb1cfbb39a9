import { createHash, randomUUID } from "node:crypto";
import { z } from "zod";
import { AgentError, InputError, SessionError, toError } from "../../errors.ts";
import { ImageTag, RepositoryName } from "../../protocol/documents/registry.ts";
import { inTurns } from "../../lib/async/in-turns.ts";
import type { RegistryAccess } from "./registry-tokens.ts";

/** A tag of a repository; `size` is the sum of its layers in bytes. */
export interface ImageTagRecord {
  readonly name: string;
  readonly digest: string;
  readonly uri: string;
  readonly size: number | undefined;
}

/** Images of a registry, over its HTTP API (OCI Distribution Specification). */
export interface Registry {
  /** Returns the sorted names of repositories that have tags. */
  repositories(): Promise<readonly string[]>;
  /** Returns undefined if the repository does not exist or is empty. */
  tags(repository: string): Promise<readonly ImageTagRecord[] | undefined>;
  /** Removes one tag; returns false if it does not exist. Other tags of the same image stay. */
  removeTag(repository: string, tag: string): Promise<boolean>;
  /** Removes a repository with all tags and images; returns false if it does not exist. */
  removeRepository(repository: string): Promise<boolean>;
}

export interface RegistryOptions {
  /** Origin of the registry's API. */
  readonly url: string;
  /** Host of the registry in references. */
  readonly host: string;
  readonly token: (access: readonly RegistryAccess[]) => Promise<string>;
}

const MANIFESTS = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ");
const DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json";
const DEADLINE_MS = 10_000;
const MAX_BYTES = 8 * 1024 * 1024;
const PAGE = 1000;
const MAX_PAGES = 100;
/** Limit of concurrent requests. */
const MAX_CONCURRENT = 8;

const Catalog = z.object({ repositories: z.array(z.string()).nullable() });
const Tags = z.object({ tags: z.array(z.string()).nullable() });
const Manifest = z.looseObject({ layers: z.array(z.looseObject({ size: z.number() })).optional() });
const Errors = z.object({ errors: z.array(z.looseObject({ code: z.string(), message: z.string().optional() })) });

interface Call {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly access: readonly RegistryAccess[];
  readonly accept?: string;
  readonly body?: { readonly type: string; readonly text: string };
}

/**
 * Builds a client of a registry's HTTP API. Calls reject with {SessionError} `registry-unreachable`, `registry-refused` with its message,
 * or {InputError} `not-supported` if it does not permit deletion.
 */
export function httpRegistry({ url, host, token }: RegistryOptions): Registry {
  const send = async (call: Call): Promise<Response> => {
    // Joined as text: a path from the registry, such as `//elsewhere`, must not send the token to another host.
    const target = new URL(new URL(url).origin + call.path);
    const headers: Record<string, string> = { authorization: `Bearer ${await token(call.access)}` };
    if (call.accept !== undefined) headers["accept"] = call.accept;
    if (call.body !== undefined) headers["content-type"] = call.body.type;
    try {
      return await fetch(target, {
        method: call.method,
        headers,
        redirect: "error",
        signal: AbortSignal.timeout(DEADLINE_MS),
        ...(call.body === undefined ? {} : { body: call.body.text }),
      });
    } catch (error) {
      const reason = toError(toError(error).cause ?? error).message;
      throw new SessionError("registry-unreachable", `the registry at ${url}: ${reason}`, { cause: error });
    }
  };

  /** Sends a request; returns undefined for 404. */
  const request = async (call: Call): Promise<Response | undefined> => {
    const response = await send(call);
    if (response.ok) return response;
    const body = await readText(response);
    if (response.status === 404) return undefined;
    if (call.method === "DELETE" && (response.status === 405 || body.includes("UNSUPPORTED"))) {
      throw new InputError(
        "not-supported",
        "the registry does not permit deletion; set storage.delete.enabled in its configuration",
      );
    }
    throw refused(response.status, body);
  };

  const pages = async (path: string, access: readonly RegistryAccess[]): Promise<readonly unknown[]> => {
    const found: unknown[] = [];
    let next: string | undefined = path;
    for (let page = 0; next !== undefined && page < MAX_PAGES; page += 1) {
      const response: Response | undefined = await request({ method: "GET", path: next, access });
      if (response === undefined) break;
      found.push(await readJson(response));
      next = nextOf(response.headers.get("link"));
    }
    return found;
  };

  const tagNames = async (repository: string): Promise<readonly string[]> => {
    const found = await pages(`/v2/${repository}/tags/list?n=${PAGE}`, pull(repository));
    return found.flatMap((page) => parse(Tags, page).tags ?? []).sort();
  };

  const manifestPath = (repository: string, reference: string): string => `/v2/${repository}/manifests/${reference}`;

  const digestOf = async (repository: string, tag: string): Promise<string | undefined> => {
    const call = {
      method: "HEAD",
      path: manifestPath(repository, tag),
      access: pull(repository),
      accept: MANIFESTS,
    } as const;
    return (await request(call))?.headers.get("docker-content-digest") ?? undefined;
  };

  const describe = async (repository: string, name: string): Promise<readonly ImageTagRecord[]> => {
    const path = manifestPath(repository, name);
    const response = await request({ method: "GET", path, access: pull(repository), accept: MANIFESTS });
    const digest = response?.headers.get("docker-content-digest");
    if (response === undefined || digest === null || digest === undefined) return [];
    const { layers } = parse(Manifest, await readJson(response));
    const size = layers?.reduce((sum, layer) => sum + layer.size, 0);
    return [{ name, digest, uri: `${host}/${repository}:${name}`, size }];
  };

  const removeManifest = async (repository: string, digest: string): Promise<void> => {
    await request({ method: "DELETE", path: manifestPath(repository, digest), access: change(repository) });
  };

  /** Moves a tag to an image of its own, so that its deletion does not affect other tags. */
  const detachTag = async (repository: string, tag: string): Promise<string> => {
    const access = change(repository);
    const config = JSON.stringify({ id: randomUUID() });
    const digest = `sha256:${createHash("sha256").update(config).digest("hex")}`;
    const upload = await request({ method: "POST", path: `/v2/${repository}/blobs/uploads/`, access });
    const at = new URL(upload?.headers.get("location") ?? "", url);
    at.searchParams.set("digest", digest);
    const body = { type: "application/octet-stream", text: config };
    await request({ method: "PUT", path: at.pathname + at.search, access, body });
    const manifest = JSON.stringify({
      schemaVersion: 2,
      mediaType: DOCKER_MANIFEST,
      config: { mediaType: DOCKER_CONFIG, size: config.length, digest },
      layers: [],
    });
    const put = { method: "PUT", path: manifestPath(repository, tag), access } as const;
    const stored = await request({ ...put, body: { type: DOCKER_MANIFEST, text: manifest } });
    const own = stored?.headers.get("docker-content-digest");
    if (own === null || own === undefined) throw refused(stored?.status ?? 404, "the registry rejected a manifest");
    return own;
  };

  return {
    async repositories() {
      const found = await pages(`/v2/_catalog?n=${PAGE}`, [{ type: "registry", name: "catalog", actions: ["*"] }]);
      const names = found.flatMap((page) => parse(Catalog, page).repositories ?? []);
      const known = names.filter((name) => RepositoryName.safeParse(name).success).sort();
      // A registry still lists a repository whose last tag was removed.
      const counts = await inTurns(known, MAX_CONCURRENT, async (name) => (await tagNames(name)).length);
      return known.filter((_, at) => (counts[at] ?? 0) > 0);
    },
    async tags(repository) {
      const names = (await tagNames(repository)).filter((name) => ImageTag.safeParse(name).success);
      const found = (await inTurns(names, MAX_CONCURRENT, (name) => describe(repository, name))).flat();
      return found.length === 0 ? undefined : found;
    },
    async removeTag(repository, tag) {
      const digest = await digestOf(repository, tag);
      if (digest === undefined) return false;
      const others = (await tagNames(repository)).filter((name) => name !== tag);
      const digests = await inTurns(others, MAX_CONCURRENT, (name) => digestOf(repository, name));
      await removeManifest(repository, digests.includes(digest) ? await detachTag(repository, tag) : digest);
      return true;
    },
    async removeRepository(repository) {
      const names = await tagNames(repository);
      const digests = new Set(await inTurns(names, MAX_CONCURRENT, (name) => digestOf(repository, name)));
      const known = [...digests].filter((digest) => digest !== undefined);
      await inTurns(known, MAX_CONCURRENT, (digest) => removeManifest(repository, digest));
      return known.length > 0;
    },
  };
}

const pull = (name: string): readonly RegistryAccess[] => [{ type: "repository", name, actions: ["pull"] }];
const change = (name: string): readonly RegistryAccess[] => [
  { type: "repository", name, actions: ["pull", "push", "delete"] },
];

/** Returns the path of the next page (RFC 8288), if there is one. */
function nextOf(link: string | null): string | undefined {
  const target = /<([^>]+)>\s*;\s*rel="?next"?/.exec(link ?? "")?.[1];
  if (target === undefined) return undefined;
  const { pathname, search } = new URL(target, "http://registry.invalid");
  return pathname + search;
}

function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw refused(200, "the response is not that of a registry");
  return parsed.data;
}

async function readJson(response: Response): Promise<unknown> {
  try {
    return JSON.parse(await readText(response));
  } catch (error) {
    if (error instanceof AgentError) throw error;
    throw refused(response.status, "the response is not JSON");
  }
}

async function readText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const body: AsyncIterable<Uint8Array> | null = response.body;
  if (body === null) return "";
  try {
    for await (const chunk of body) {
      size += chunk.length;
      if (size > MAX_BYTES) throw refused(response.status, "the response exceeds 8 MiB");
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof AgentError) throw error;
    const { message } = toError(error);
    throw new SessionError(
      "registry-unreachable",
      `the registry closed the connection during its response: ${message}`,
      { cause: error },
    );
  }
  return Buffer.concat(chunks).toString("utf8");
}

function refused(status: number, body: string): SessionError {
  const error = Errors.safeParse(jsonOf(body)).data?.errors[0];
  const text = error === undefined ? body.slice(0, 200) : `${error.code.toLowerCase()} ${error.message ?? ""}`.trim();
  return new SessionError("registry-refused", `the registry responded with status ${status}: ${text}`, {
    details: { status },
  });
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
