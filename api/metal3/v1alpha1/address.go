package v1alpha1

// IP is a defined type, unlike the formats of package formats: controller-gen cannot copy
// a map whose values have an alias type.

// IP is an IPv4 address without leading zeros, or an IPv6 address, without a zone and not
// IPv4 written as IPv6.
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self)",messageExpression="self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
type IP string

// NameServer is an IP that the webhooks check: the entries of a pool may have so many
// name servers that the API server estimates the cost of a CEL rule as too high.
// +kubebuilder:validation:MaxLength=39
type NameServer string
