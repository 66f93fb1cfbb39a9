import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";

type Coding = "br" | "gzip" | "identity";

const CODERS: Readonly<Record<Coding, (bytes: Buffer) => Promise<Buffer>>> = {
  br: (bytes) => promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }),
  gzip: (bytes) => promisify(gzip)(bytes, { level: 9 }),
  identity: (bytes) => Promise.resolve(bytes),
};

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
