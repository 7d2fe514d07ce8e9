// The builder's own choice of module ids hashes the path of the clone, and the bundle is compared
// byte by byte with one that is built elsewhere.
module.exports = { optimization: { moduleIds: 'natural' } };
