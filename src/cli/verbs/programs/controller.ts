import { DIRECTORIES } from "../../frame/verb-options.ts";
import type { VerbSpec } from "../../frame/verb.ts";

export const controllerVerb: VerbSpec = {
  name: "controller",
  summary: "run a complete small control plane",
  arguments: [],
  options: {
    listen: { value: "ADDRESS:PORT", help: "where to serve the HTTP API and the nodes (127.0.0.1:8480)" },
    data: { value: "DIR", help: "where its state lives (/var/lib/holdfast-controller)", complete: "directory" },
    "tls-cert": { value: "FILE", help: "certificate chain in PEM (self-made, except on loopback)", complete: "file" },
    "tls-key": { value: "FILE", help: "its private key in PEM", complete: "file" },
    tls: { help: "create a certificate and serve TLS on loopback too" },
    url: { value: "ORIGIN", help: "the address nodes dial (the one listened on)" },
    "front-pin": {
      value: "SHA256[,...]",
      help: "keys of the front end that ends TLS for an https --url, as base64url of SHA-256",
    },
    "trusted-proxy": {
      value: "ADDRESS[/BITS][,...]",
      help: "front ends whose X-Forwarded-For names the address of a client",
    },
    registry: { value: "ORIGIN", help: "the image registry, which takes this controller's tokens" },
    "registry-host": {
      value: "HOST[:PORT]",
      help: "what nodes call it in image references (the host of --registry)",
    },
    releases: {
      value: "DIR",
      help: "serve the files of this directory to anyone below /releases/",
      complete: "directory",
    },
    "geo-file": {
      value: "FILE",
      help: "geolocation database (MMDB) for the location of nodes, read again when it changes",
      complete: "file",
    },
    store: { value: "ADDRESS", help: "sqlite, or postgres://USER@HOST:PORT/DATABASE (sqlite)" },
    "store-password-file": { value: "FILE", help: "the password of the PostgreSQL user", complete: "file" },
    "store-ca-file": {
      value: "FILE",
      help: "the authorities of the PostgreSQL server's certificate, PEM (the system's)",
      complete: "file",
    },
    "node-keys": { value: "FORM", help: "public keys of nodes in the API: text (base64) or jwk (text)" },
    "secret-overlap": {
      value: "SECONDS",
      help: "how long the earlier secret of a service user stays valid beside a new one, at most 604800 (0)",
    },
    mock: { help: "answer each request with the documented example; any credential is accepted, nothing is kept" },
    domain: { value: "FQDN", help: "the domain of the nodes, fixed at the first start (holdfast.example)" },
    state: { value: "DIR", help: "accepted as by every verb, and not used: see --data", complete: "directory" },
    run: { value: "DIR", help: "where its pid file goes (the directory of --data)", complete: "directory" },
    help: DIRECTORIES.help,
  },
  exits: ["ok", "failed", "usage"],
  example: "holdfast controller --listen 127.0.0.1:8480 --data /var/lib/holdfast-controller",
};
