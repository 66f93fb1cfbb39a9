import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";

type Coding = "br" | "gzip" | "identity";

type Coders = Readonly<Record<Coding, (bytes: Buffer) => Promise<Buffer>>>;

const codersOf = (quality: { readonly br: number; readonly gzip: number }): Coders => ({
  br: (bytes) => promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: quality.br } }),
  gzip: (bytes) => promisify(gzip)(bytes, { level: quality.gzip }),
  identity: (bytes) => Promise.resolve(bytes),
});

const CODERS = codersOf({ br: 9, gzip: 9 });
/** For answers that are sent once. */
const QUICK_CODERS = codersOf({ br: 2, gzip: 4 });

/** A fixed text, compressed as each client accepts it (RFC 9110 §12.5.3), with an entity tag (§8.8.3). */
export class Compressed {
  readonly #bytes: Buffer;
  readonly #type: string;
  readonly #tag: string;
  readonly #coded = new Map<Coding, Promise<Buffer>>();

  constructor(text: string, type: string) {
    this.#bytes = Buffer.from(text);
    this.#type = type;
    this.#tag = createHash("sha256").update(this.#bytes).digest("base64url").slice(0, 22);
  }

  /** Returns the response: 304 if the client has the text already. */
  async respond({ headers: asked }: Request): Promise<Response> {
    const coding = codingOf(asked.get("accept-encoding") ?? "");
    const etag = `"${this.#tag}-${coding}"`;
    const headers = new Headers({ etag, vary: "accept-encoding", "cache-control": "no-cache" });
    const tags = (asked.get("if-none-match") ?? "").split(",");
    const known = new Set(tags.map((tag) => tag.trim().replace(/^W\//, "")));
    if (known.has(etag) || known.has("*")) return new Response(null, { status: 304, headers });
    const coded = this.#coded.get(coding) ?? CODERS[coding](this.#bytes);
    this.#coded.set(coding, coded);
    headers.set("content-type", this.#type);
    if (coding !== "identity") headers.set("content-encoding", coding);
    return new Response(new Uint8Array(await coded), { headers });
  }
}

/** Smallest JSON answer that is compressed, in bytes. */
const LEAST_BYTES = 4096;

/**
 * Compresses a JSON answer as the client accepts it (RFC 9110 §12.5.3), outside the event loop's thread. Streams of other types, answers
 * with an entity tag, and small ones stay as they are.
 */
export async function compressed({ headers: asked }: Request, response: Response): Promise<Response> {
  const { status, headers } = response;
  const isJson = headers.get("content-type")?.startsWith("application/json") === true;
  if (!isJson || headers.has("content-encoding") || headers.has("etag")) return response;
  headers.append("vary", "accept-encoding");
  const coding = codingOf(asked.get("accept-encoding") ?? "");
  if (coding === "identity") return response;
  const bytes = Buffer.from(await response.arrayBuffer());
  if (bytes.length < LEAST_BYTES) return new Response(bytes, { status, headers });
  headers.set("content-encoding", coding);
  return new Response(new Uint8Array(await QUICK_CODERS[coding](bytes)), { status, headers });
}

/** Returns the smallest coding that a client accepts. */
function codingOf(accepted: string): Coding {
  const weights = new Map(
    accepted.split(",").map((item) => {
      const [name = "", ...parameters] = item
        .toLowerCase()
        .split(";")
        .map((part) => part.trim());
      const weight = parameters.find((part) => part.startsWith("q="))?.slice(2) ?? "1";
      return [name, Number(weight)] as const;
    }),
  );
  const accepts = (name: string): boolean => (weights.get(name) ?? weights.get("*") ?? 0) > 0;
  return accepts("br") ? "br" : accepts("gzip") ? "gzip" : "identity";
}
