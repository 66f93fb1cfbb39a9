// The web server of a site, on all addresses of its host: web-program.ts PORT. Serves a page, and a large file that can be fetched in parts.
import { createCipheriv, createHash } from "node:crypto";
import { createServer } from "node:http";

const LARGE_BYTES = 96 * 1024 * 1024;
// Reproducible, and no two blocks of it alike.
const large = createCipheriv("aes-128-ctr", Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(LARGE_BYTES));
const checksum = createHash("sha256").update(large).digest("hex");

createServer((request, response) => {
  switch (request.url) {
    case "/":
      return response.end("Hello from site B\n");
    case "/large": {
      const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
      if (from >= LARGE_BYTES) return response.writeHead(416, { "content-range": `bytes */${LARGE_BYTES}` }).end();
      const part = large.subarray(from);
      response.writeHead(from === 0 ? 200 : 206, {
        "content-length": part.length,
        "content-range": `bytes ${from}-${LARGE_BYTES - 1}/${LARGE_BYTES}`,
        "accept-ranges": "bytes",
      });
      return response.end(part);
    }
    case "/large.sha256":
      return response.end(`${checksum}  the file as the server has it\n`);
    default:
      return response.writeHead(404).end();
  }
}).listen(Number(process.argv[2]), () => console.log("ready"));
