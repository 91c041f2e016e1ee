np () 
{ 
    echo "\$ np $*";
    cat <<X |
apiVersion: butler.butlerlabs.dev/v1alpha1
kind: NetworkPool
metadata: {name: $1, namespace: n${4:+, labels: {butler.butlerlabs.dev/routing-domain: $4\}}}
spec: {cidr: $2, reuseDelay: $3}
X
  k apply -f -
}
ipa () 
{ 
    echo "\$ ipa $*";
    k create -f - -o 'jsonpath={.metadata.name} => {.spec.pinnedRange}{"\n"}' 2>&1 <<X
apiVersion: butler.butlerlabs.dev/v1alpha1
kind: IPAllocation
metadata: {name: $1, namespace: n}
spec: {poolRef: {name: $2}, tenantClusterRef: {name: t, namespace: n}, type: loadbalancer, $3}
X

}
