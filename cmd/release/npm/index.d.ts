/** Path of the command line: graft inspect, graft ab, graft run -- node program.js. */
export const binary: string;
/** Path of the library that graft run has a program load. */
export const library: string;
