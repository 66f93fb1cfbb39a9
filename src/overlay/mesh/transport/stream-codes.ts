// Error codes of HTTP/2 streams (RFC 9113 §7). Importing node:http2 for them would load all of it on a node without
// peers.
export const NO_ERROR = 0;
export const PROTOCOL_ERROR = 1;
export const INTERNAL_ERROR = 2;
export const REFUSED_STREAM = 7;
export const CANCEL = 8;
export const CONNECT_ERROR = 10;
export const ENHANCE_YOUR_CALM = 11;
export const INADEQUATE_SECURITY = 12;
